"""Clients of others and our own, beside one another."""
