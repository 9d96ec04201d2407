"""The report of a campaign: figures, and one self-contained HTML page."""
