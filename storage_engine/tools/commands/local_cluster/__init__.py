"""The commands that run a cluster in a directory of this machine."""
