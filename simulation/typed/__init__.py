"""Typed topics in a run: rows written as columns and as JSON, read as both, compared row by row."""
