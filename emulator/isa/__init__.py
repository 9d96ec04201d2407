"""The instruction table: encodings, formats, classes and semantics, written once."""
