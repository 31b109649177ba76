"""Offsets that are stored without membership."""
