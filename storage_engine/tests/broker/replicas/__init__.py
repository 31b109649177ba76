"""Replicas: appends, fetching followers, and folders that move, fill up and fail."""
