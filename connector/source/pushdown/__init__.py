"""Filters of a query that a batch read takes over from Spark: what they leave, and the reader."""
