"""Files that only their owner may read, whatever the umask."""

import os

OWNER_ONLY = 0o600


def for_owner(path: str, flags: int) -> int:
    """The `opener` of `open` for a file that is made."""
    return os.open(path, flags, OWNER_ONLY)
