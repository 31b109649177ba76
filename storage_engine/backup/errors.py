"""Errors of backups. The text is one line, with what to do."""

from storage_engine.core.errors import HeadraceError


class BackupError(HeadraceError):
    """A backup can't be made, read or restored."""


class StoreError(BackupError):
    """The place of the backups did not do what was asked."""


class DamagedError(BackupError):
    """What is read is not what a backup has written."""
