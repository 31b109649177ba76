"""Writes rows with columns to typed topics."""
