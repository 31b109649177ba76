"""Makes the one function that is used of the package `crc32c` importable without the rest, which
imports a command line and, for its version, Python's packages of e-mail: 1 MB in each broker.

Programs of ours do this; a user's own process imports what it imports. The package `kafka` is put
off in every process, by `storage_engine.protocol.apis`.
"""

import importlib
import sys

from storage_engine.protocol.apis.lazy_kafka import put_off


def load_only_when_asked() -> None:
    """Puts a stand-in where the package is not imported yet. Where another version has the function
    elsewhere, the package loads itself as soon as somebody imports it."""
    if not put_off("crc32c"):
        return
    try:
        part = importlib.import_module("crc32c._crc32c")
        sys.modules["crc32c"].__dict__["crc32c"] = part.crc32c
    except (ImportError, AttributeError):
        return
