"""Requests of administrators and of other brokers."""
