"""`measure init`: from a program to a campaign file that can be run."""
