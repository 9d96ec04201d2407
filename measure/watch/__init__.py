"""`measure watch`: a live page of a campaign, from the files that the campaign leaves."""
