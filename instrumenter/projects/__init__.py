"""Builds programs by a project's own command, in a copy, and says what to do about a build that failed."""
