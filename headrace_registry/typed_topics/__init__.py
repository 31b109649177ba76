"""Typed topics as subjects: each version of a topic's schema is a version of `T-value`."""
