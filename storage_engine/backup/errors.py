"""Errors of backups. The text is one line, with what to do."""

from storage_engine.core.errors import HeadraceError


class BackupError(HeadraceError):
    """A backup can't be made, read or restored."""


class BackupStoreError(BackupError):
    """The place of the backups did not do what was asked."""


class DamagedError(BackupError):
    """Something is read that no backup has written."""
