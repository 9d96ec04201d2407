"""Builds single programs from sources: the instrumented text, objects, and a link for each code layout."""
