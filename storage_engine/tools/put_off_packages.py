"""Makes what our programs need of two packages importable without the rest, which costs more.

The package `kafka` imports its whole consumer, producer and admin client, a hundred modules that no
schema of `kafka.protocol` needs: 0.13 s of processor time and 14 MB in each broker and in most
commands. The package `crc32c` imports a command line and, for its version, Python's packages of
e-mail: 1 MB. So packages that are not loaded yet stand in for them, and load
themselves when somebody asks for more than a submodule. Programs of ours do this, before they have
threads; a user's own process imports what it imports.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any


class _NotLoadedYet(ModuleType):
    """A package with its submodules; whatever else is asked of it has it loaded first."""

    def __getattr__(self, name: str) -> Any:
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        # From here on it is the package, also to itself while it loads.
        self.__class__ = ModuleType  # type: ignore[assignment]
        try:
            self.__spec__.loader.exec_module(self)
        except BaseException:
            # Whoever asks next gets the same error, and no half of a package.
            self.__class__ = _NotLoadedYet
            raise
        return getattr(self, name)


def load_only_when_asked() -> None:
    """Puts the stand-ins where the packages are not imported yet."""
    _stand_in("kafka")
    if _stand_in("crc32c"):
        _take_crc32c()


def _stand_in(name: str) -> bool:
    """Return True when a stand-in was put in the package's place."""
    if name in sys.modules:
        return False
    spec = importlib.util.find_spec(name)
    if spec is None:
        # Whoever imports it next gets Python's own error.
        return False
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _NotLoadedYet
    sys.modules[name] = package
    return True


def _take_crc32c() -> None:
    """Gives the stand-in the one function that is used of it. Where another version has it
    elsewhere, the package loads itself as soon as somebody imports the function."""
    try:
        part = importlib.import_module("crc32c._crc32c")
        sys.modules["crc32c"].__dict__["crc32c"] = part.crc32c
    except (ImportError, AttributeError):
        return
