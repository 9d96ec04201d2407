"""Instruments C programs: software metrics as counters in the source, and the same metrics as probes."""
