"""The table of settings."""
