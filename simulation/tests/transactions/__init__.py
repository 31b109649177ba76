"""Checks of transactions."""
