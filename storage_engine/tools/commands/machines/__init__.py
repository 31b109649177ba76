"""The commands that run a cluster's parts on machines of its own, for production."""
