"""Requests about consumer groups that all clients share: who commits, and the committed offsets."""
