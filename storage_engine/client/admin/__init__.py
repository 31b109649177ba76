"""Administration: topics, settings, groups, reassignments, log dirs, transactions."""
