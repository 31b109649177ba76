"""Handlers of the APIs that write, read and delete records."""
