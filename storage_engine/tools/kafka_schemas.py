"""Makes `kafka.protocol`, kafka-python's schemas, importable without its clients.

The package `kafka` imports its whole consumer, producer and admin client, a hundred modules that no
schema needs: 0.13 s of processor time and 14 MB in each broker and in most commands. So a package
that is not loaded yet stands in for it, and loads itself when somebody asks for more than a
submodule. Programs of ours do this, before they have threads; a user's own process imports what it
imports.
"""

import importlib.util
import sys
from types import ModuleType
from typing import Any

_PACKAGE = "kafka"


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
    """Puts the stand-in where the package is not imported yet."""
    if _PACKAGE in sys.modules:
        return
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None:
        # Whoever imports it next gets Python's own error.
        return
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _NotLoadedYet
    sys.modules[_PACKAGE] = package
