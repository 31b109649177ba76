"""Files of a cluster's directory, replaced in one step."""

import os
import tempfile
from pathlib import Path

from storage_engine.zookeeper.session_credentials import OWNER_ONLY


def write_whole(path: Path, content: bytes, *, mode: int = OWNER_ONLY) -> None:
    """A reader sees the old file or the new one, also in a crash; at no time can others read what
    only its owner may."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
