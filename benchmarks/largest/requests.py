"""The largest legal request for each list of each API, made from the schemas of kafka-python
and, where it has none, from our own messages.

Each list that encloses the tested one has one item, the tested list has as many as are asked for,
and all others are empty. A list is filled twice: with different names or numbers, and with the
same.
"""

import importlib
import pkgutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import kafka.protocol
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.data_container import DataContainer

from benchmarks.largest.consumer_group_requests import CONSUMER_GROUP_REQUESTS, Body
from storage_engine.protocol.apis.registry import SERVED_RANGES, name_of, spec_for

TOPIC = "many"
"""An existing topic, for lists that are not the tested one."""

_NAMES = frozenset(
    {
        "name",
        "topic",
        "topic_name",
        "resource_name",
        "key",
        "member_id",
        "transactional_id",
        "group_id",
    }
)
_NUMBERS = frozenset({"partition", "partition_index", "index", "partition_id"})
_FIXED: dict[str, int | str] = {
    "replica_id": -1,
    "acks": -1,
    "timeout_ms": 1000,
    "max_wait_ms": 1000,
    "min_bytes": 1 << 30,
    "max_bytes": 1 << 30,
    "partition_max_bytes": 1 << 20,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "leader_epoch": -1,
    "timestamp": -1,
    "resource_type": 2,
    "num_partitions": 1,
    "replication_factor": 1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "validate_only": True,
    "count": 2**31 - 1,
    "group_id": "group",
    "protocol_type": "consumer",
}


_OTHER_FORMS = ((24, 3), (9, 7), (20, 5))
"""Versions of AddPartitionsToTxn, OffsetFetch and DeleteTopics with lists that the newest lacks."""


Value: TypeAlias = "int | float | str | bytes | list[Value] | DataContainer | None"
"""The value of a field."""


class _Field(Protocol):
    """A field of a message of kafka-python."""

    name: str
    type_str: str
    array_of: "_Field"
    data_class: type[DataContainer]
    fields: Mapping[str, "_Field"]

    def for_version_q(self, version: int) -> bool: ...
    def tagged_field_q(self, version: int) -> bool: ...
    def is_array(self) -> bool: ...
    def is_struct_array(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestRequest:
    """A request with one long list."""

    api_key: int
    version: int
    items: str
    """The path of the list, and whether its items are the same or different."""
    count: int
    frame: bytes

    @property
    def name(self) -> str:
        return name_of(self.api_key)


def largest_requests(
    count: int, frame_max_bytes: int, api: str | None = None
) -> Iterator[LargestRequest]:
    """Yield the largest requests of all APIs, or of one, with `count` items each, or as many as fit
    in a frame."""
    classes = _request_classes()
    versions = [(key, newest) for key, (_, newest) in SERVED_RANGES.items()]
    for key, version in [*versions, *_OTHER_FORMS]:
        if api not in (None, name_of(key)):
            continue
        bodies = CONSUMER_GROUP_REQUESTS.get(key)
        if bodies is None:
            bodies = dict(_bodies(classes[name_of(key) + "Request"], version))
        head = struct.pack(">hhih", key, version, 1, -1)
        head += b"\x00" if spec_for(key).is_flexible(version) else b""
        for path, body_of in bodies.items():
            for same in (False, True):
                size, frame = count, b""
                while True:
                    frame = head + body_of([0] * size if same else range(size))
                    if len(frame) <= frame_max_bytes:
                        break
                    size = size * frame_max_bytes // len(frame) * 9 // 10
                kind = f"{path}, {'the same' if same else 'different'}"
                yield LargestRequest(
                    api_key=key, version=version, items=kind, count=size, frame=frame
                )


def _request_classes() -> dict[str, type[ApiMessage]]:
    """Return the classes of all requests in kafka-python, by their names."""
    modules = pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol.")
    return {
        name: each
        for module in modules
        for name, each in vars(importlib.import_module(module.name)).items()
        if isinstance(each, type) and name.endswith("Request") and hasattr(each, "fields")
    }


def _lists(
    fields: Mapping[str, _Field], version: int, above: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield the path of every list, those within lists, too."""
    for field in fields.values():
        if field.for_version_q(version) and field.is_array():
            path = (*above, field.name)
            yield path
            if field.is_struct_array():
                yield from _lists(field.fields, version, path)


def _bodies(message_class: type[ApiMessage], version: int) -> Iterator[tuple[str, Body]]:
    """Yield what encodes a request, for the path of each of its lists."""
    for path in _lists(message_class.fields, version, ()):

        def body_of(numbers: Sequence[int], path: tuple[str, ...] = path) -> bytes:
            values = _Filler(version, path, numbers).values(message_class.fields, ())
            body: bytes = message_class(version=version, **values).encode(version=version)
            return body

        yield ".".join(path), body_of


class _Filler:
    """Fills the fields of one request."""

    def __init__(self, version: int, path: tuple[str, ...], numbers: Sequence[int]) -> None:
        """`numbers`: one for each item of the long list."""
        self._version = version
        self._path = path
        self._numbers = numbers

    def values(
        self, fields: Mapping[str, _Field], above: tuple[str, ...], number: int = -1
    ) -> dict[str, Value]:
        """Return values by field. `number`: the long list's item that has the fields; -1: none."""
        return {
            field.name: self._value(field, above, number)
            for field in fields.values()
            if field.for_version_q(self._version) and not field.tagged_field_q(self._version)
        }

    def _value(self, field: _Field, above: tuple[str, ...], number: int) -> Value:
        if not field.is_array():
            return self._plain(field.name, field.type_str, number)
        path = (*above, field.name)
        if path == self._path:
            if field.is_struct_array():
                return [
                    field.data_class(version=self._version, **self.values(field.fields, path, each))
                    for each in self._numbers
                ]
            of = field.array_of
            return [self._plain("name", of.type_str, each) for each in self._numbers]
        if path == self._path[: len(path)]:
            return [field.data_class(version=self._version, **self.values(field.fields, path))]
        return []

    def _plain(self, name: str, kind: str, number: int) -> Value:
        if kind == "string" and number >= 0 and name in _NAMES:
            return f"{TOPIC}{number}"
        if name in _FIXED:
            return _FIXED[name]
        if kind == "string":
            return TOPIC
        if kind == "bool":
            return False
        if kind == "bytes" or kind == "records":
            return b""
        if kind == "float64":
            return 1.0
        if kind == "uuid":
            return None
        if kind == "int8":
            return max(0, number) % 128
        if kind.startswith("int"):
            return max(0, number) if name in _NUMBERS or name == "name" else 0
        return None
