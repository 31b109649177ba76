"""Administration: topics, settings, groups, reassignments, log directories, transactions."""
