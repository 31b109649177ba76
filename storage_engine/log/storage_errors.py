"""From errors of the operating system to ours. Its one rule: an OSError leaves this package only as
LogStorageError.

It names the action and the file, and has the code that tells a client to try another replica. Its
class tells how far the failure goes: this action only (no room), this log, or the whole data
folder.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage_engine.core.errors import LogFolderError, LogFullError, LogStorageError

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""There may be room again later."""

DEVICE_FAILED = frozenset(
    {
        errno.EIO,
        errno.EROFS,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOMEDIUM,
        errno.EREMOTEIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EUCLEAN,
    }
)
"""Not the file's fault but that of the disk under it."""


def storage_error(
    action: str, path: Path, error: OSError, *, unchanged: bool = False
) -> LogStorageError:
    """`unchanged`: everything is as it was before the action, so that a lack of room did no
    harm."""
    message = f"can't {action} {path}: {error.strerror or error}"
    if error.errno in DEVICE_FAILED:
        return LogFolderError(message)
    if unchanged and error.errno in NO_ROOM:
        return LogFullError(message)
    return LogStorageError(message)


@contextmanager
def storage_errors(action: str, path: Path, *, unchanged: bool = False) -> Iterator[None]:
    """Around work on `path`; not for hot paths, where a `try` costs less."""
    try:
        yield
    except OSError as error:
        raise storage_error(action, path, error, unchanged=unchanged) from error
