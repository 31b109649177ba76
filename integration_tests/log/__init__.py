"""Logs on real disks: damaged, full, deleted, compacted, read by others."""
