"""Handlers of the APIs of consumer groups."""
