"""Verdicts as files for other programs: tables of pairs, JSON, and what continuous integration reads."""
