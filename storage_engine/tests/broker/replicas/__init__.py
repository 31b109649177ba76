"""Replicas: appends, fetching followers, and log dirs that move, fill up and fail."""
