"""Clusters on one machine."""
