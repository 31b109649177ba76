"""Runs every example."""
