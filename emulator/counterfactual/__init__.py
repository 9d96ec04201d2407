"""Runs as no processor can make them: chosen instructions cost nothing, chosen accesses touch no cache, code and data
lie elsewhere. The guest executes as always; only what the timing core sees of it is changed."""
