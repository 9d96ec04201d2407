"""Software metrics into C source, cross-compilation, and the same metrics as non-intrusive probes."""
