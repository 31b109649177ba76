"""Requests that take long or wait: fetches, sessions, reads from disk."""
