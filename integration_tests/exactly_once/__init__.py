"""Exactly once into topics: queries, faults, and the judgement of what was read."""
