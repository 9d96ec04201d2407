"""Which code is translated how, and when: tiers, the regions of each, their formation, the background thread."""
