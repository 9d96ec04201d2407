"""`measure compare`: two results of a campaign, before and after a change."""
