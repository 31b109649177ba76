"""Periodic work on this broker's logs: retention, flushes, compaction, scrubbing and repair."""
