"""The report that a person reads: figures, and one self-contained HTML page."""
