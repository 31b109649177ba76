"""What stands for the contents of all idle replicas can't be changed in tests: whatever a test of
this package runs raises where it would write into the dict that thousands of partitions share.
"""

import importlib
from collections import deque
from typing import Any, NoReturn

SHARED = {
    "storage_engine.broker.cluster.metadata_cache": "_NOTHING",
    "storage_engine.broker.replicas.follower_watches": "_NOBODY",
    "storage_engine.broker.replicas.hosted_partition": "_NO_STARTS",
    "storage_engine.broker.replicas.purgatory": "_NOBODY",
    "storage_engine.core.retained.producer_state": "_NOTHING",
    "storage_engine.core.transactions.partition_transactions": "_NOTHING _NOBODY",
    "storage_engine.core.transactions.verification_guard": "_NOBODY",
    "storage_engine.log.segments.index_file": "_NOTHING",
    "storage_engine.log.segments.read_positions": "_NOWHERE",
    "storage_engine.protocol.apis.wire": "_NO_TAGS",
}
"""By module the names of its shared empty containers."""

CHANGES = (
    *("__setitem__", "__delitem__", "__iadd__", "__ior__", "__imul__", "setdefault", "update"),
    *("append", "appendleft", "extend", "extendleft", "insert", "popitem", "popleft", "remove"),
)
"""`pop` with a default and `clear` leave an empty container as it is."""


class SharedContainerChangedError(Exception):
    """Something was put into a container that partitions share."""


def _refuse(*_: object) -> NoReturn:
    raise SharedContainerChangedError("this container stands for those of all partitions")


def unchangeable(kind: type) -> Any:
    """An empty container of a kind of its own that refuses every change."""
    changes = {name: _refuse for name in CHANGES if hasattr(kind, name)}
    return type(f"Shared{kind.__name__.title()}", (kind,), changes)()


def forbid_changes() -> None:
    """From now on, for whatever is made by this process."""
    for module_name, names in SHARED.items():
        module = importlib.import_module(module_name)
        for name in names.split():
            shared = getattr(module, name)
            assert type(shared) in (dict, deque, bytearray), f"{module_name}.{name}"
            assert not shared, f"{module_name}.{name} was changed"
            setattr(module, name, unchangeable(type(shared)))
