"""Cycle-close traces: finds phases while the program runs, and simulates a few of its intervals in detail."""
