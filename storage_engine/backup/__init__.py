"""Backups of whole clusters, and clusters restored from them: see docs/backup.md."""
