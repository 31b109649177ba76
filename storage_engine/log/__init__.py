"""Partitions on disk: segments, indexes, recovery, retention. See `partition_log` and
`log_manager`.
"""
