"""Puts off what `import kafka` loads: kafka-python's clients, 13 MiB of memory and half a second.

The modules of the APIs need no more than `kafka.protocol`, but Python runs a package's own
`__init__` first, and that of kafka-python imports its producer, consumer and administration. Here
the package is made without running it. Whoever asks it for a name, such as `kafka.KafkaProducer`,
gets it: the first such question runs the `__init__`.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

PACKAGE = "kafka"

ITS_OWN = frozenset(
    f"__{name}__" for name in ("all", "author", "copyright", "license", "title", "version")
)
"""Names with two underscores that the `__init__` makes. Python and its tools ask every module for
others, which it does not have."""


def put_off_clients() -> None:
    """Makes the package `kafka` without its clients."""
    put_off(PACKAGE)


def put_off(name: str) -> bool:
    """Make a package whose `__init__` runs when somebody asks for more than a submodule, on any
    thread. Return False, and do nothing, where it was imported before, or is not installed."""
    if name in sys.modules:
        return False
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        # Whoever imports it next gets Python's own error.
        return False
    package = importlib.util.module_from_spec(spec)
    package.__dict__["__getattr__"] = _Rest(package, spec).get
    sys.modules[name] = package
    return True


class _Rest:
    """What the package has beside the submodules that were imported so far."""

    def __init__(self, package: ModuleType, spec: importlib.machinery.ModuleSpec) -> None:
        self._package = package
        self._spec = spec
        self._lock = threading.RLock()
        self._is_running = False

    def get(self, name: str) -> Any:
        """AttributeError where the package has no such name, as of any module."""
        if name.startswith("__") and name not in ITS_OWN:
            raise self._missing(name)
        if self._is_submodule(name):
            # Its own modules write `from kafka import errors`, also while they are imported. This
            # is without the lock: whoever holds it may wait for the import that asks.
            return importlib.import_module(f"{self._spec.name}.{name}")
        with self._lock:
            if not self._is_running:
                self._run()
        if name in self._package.__dict__:
            return self._package.__dict__[name]
        raise self._missing(name)

    def _missing(self, name: str) -> AttributeError:
        return AttributeError(f"module {self._spec.name!r} has no attribute {name!r}")

    def _is_submodule(self, name: str) -> bool:
        return importlib.util.find_spec(f"{self._spec.name}.{name}") is not None

    def _run(self) -> None:
        self._is_running = True
        loader = self._spec.loader
        assert loader is not None
        try:
            loader.exec_module(self._package)
        except BaseException:
            self._is_running = False
            raise
        self._package.__dict__.pop("__getattr__", None)
