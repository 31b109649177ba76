"""Requests under way: fetch sessions, reads, waits, and work longer than a turn of the loop."""
