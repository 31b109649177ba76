"""Requests that nobody should send, and connections that nobody needs."""
