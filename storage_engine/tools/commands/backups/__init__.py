"""Commands that make, check and restore backups."""
