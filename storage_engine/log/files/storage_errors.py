"""Translates errors of the operating system. An OSError leaves this package only as
LogStorageError.

It names the action and the file, and its code has a client try another replica. Its class says how
far the failure goes: this action only (no room, no descriptors), this log, or the whole log dir.
What each number means is in `core.system_errors`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage_engine.core.errors import (
    LogDirError,
    LogFullError,
    LogShortageError,
    LogStorageError,
)
from storage_engine.core.system_errors import Reach, reach_of_file_error


def storage_error(
    action: str, path: Path, error: OSError, *, unchanged: bool = False
) -> LogStorageError:
    """Return the error of an action. `unchanged`: everything is as it was before the action, so
    that a lack of room did no harm."""
    message = f"can't {action} {path}: {error.strerror or error}"
    reach = reach_of_file_error(error)
    if reach is Reach.LOG_DIR:
        return LogDirError(message)
    if reach is Reach.SHORTAGE:
        return LogShortageError(message)
    if unchanged and reach is Reach.ROOM:
        return LogFullError(message)
    return LogStorageError(message)


@contextmanager
def storage_errors(action: str, path: Path, *, unchanged: bool = False) -> Iterator[None]:
    """Translate errors in a `with` block about `path`; not for hot paths, where a `try` costs
    less."""
    try:
        yield
    except OSError as error:
        raise storage_error(action, path, error, unchanged=unchanged) from error
