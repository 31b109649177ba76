"""Imports without garbage collections, for programs that load hundreds of modules as they start."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Nothing that a module makes as it is loaded is garbage, but the collector looks through all
    of it each time: a fifth of the start of a broker."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
