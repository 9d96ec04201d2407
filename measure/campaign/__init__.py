"""`measure run` and what goes before it: the dry run, event counts, metrics; the commands on a whole campaign."""
