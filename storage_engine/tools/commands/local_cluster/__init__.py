"""The commands that run a cluster in a folder of this machine."""
