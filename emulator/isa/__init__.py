"""The instruction set: a table of encodings, classes and semantics, the decoder, and soft floating point."""
