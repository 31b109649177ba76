"""Files that only their owner may read."""

import os
import tempfile
from pathlib import Path

from storage_engine.zookeeper.session_credentials import OWNER_ONLY


def write_secret(path: Path, content: bytes) -> None:
    """Replaces the file in one step; at no time can others read it."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), OWNER_ONLY)
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
