"""Requests about committed offsets of consumer groups, shared by all clients."""
