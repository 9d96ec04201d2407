"""Compares the runs of a campaign: verdicts of variants, controls, outlying runs, and what the runs can find."""
