"""Faults: their schedules, compound ones as scripts, and their injection."""
