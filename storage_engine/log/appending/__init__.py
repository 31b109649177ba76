"""Appends to a log: the checks and preparations before batches are written."""
