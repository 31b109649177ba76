"""Copies topics of some clusters into another, each record once: `headrace mirror`."""
