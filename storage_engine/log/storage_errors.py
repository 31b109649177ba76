"""From errors of the operating system to ours. Its one rule: an OSError leaves this package only as
LogStorageError.

It names the action and the file, and has the code that tells a client to try another replica.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage_engine.core.errors import LogStorageError


def storage_error(action: str, path: Path, error: OSError) -> LogStorageError:
    return LogStorageError(f"can't {action} {path}: {error.strerror or error}")


@contextmanager
def storage_errors(action: str, path: Path) -> Iterator[None]:
    """Around work on `path`; not for hot paths, where a `try` costs less."""
    try:
        yield
    except OSError as error:
        raise storage_error(action, path, error) from error
