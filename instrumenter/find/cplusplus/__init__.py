"""Finds the events of metrics in preprocessed C++."""
