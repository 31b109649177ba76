"""The faults of a seed."""
