"""Finds the store that the name of a place means."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from storage_engine.backup.folder_store import FolderStore
from storage_engine.backup.store import BackupStore
from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable


def open_store(place: str, options: Mapping[str, str] | None = None) -> BackupStore:
    """ConfigError for a place that can't be one."""
    if not place:
        raise ConfigError("the place of the backups is empty: name a folder, or s3://bucket/prefix")
    if "://" not in place:
        return FolderStore(Path(place))
    parts = urlsplit(place)
    if parts.scheme == "file":
        return FolderStore(Path(unquote(parts.path)))
    if parts.scheme != "s3":
        raise ConfigError(
            f"{printable(place)}: '{printable(parts.scheme)}' is not supported: use a folder, or "
            "s3://bucket/prefix"
        )
    try:
        from storage_engine.backup.object_store import ObjectBackupStore
    except ModuleNotFoundError:
        raise ConfigError(
            "backups in an object store need the extra backup: pip install 'headrace[backup]'"
        ) from None
    return ObjectBackupStore(place.rstrip("/"), dict(options or {}))
