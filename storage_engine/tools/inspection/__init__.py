"""Checks of files and replicas that several commands share."""
