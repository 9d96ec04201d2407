"""Writes counters into preprocessed C."""
