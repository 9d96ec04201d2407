"""Cycle-close traces: phases found as the program runs, and a detailed simulation of a few of its intervals."""
