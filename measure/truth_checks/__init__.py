"""Holds verdicts, software metrics and alignments of a campaign against its ground truth."""
