"""The description of an API: its number, its versions and its four codecs.

Source: the Kafka protocol; KIP-482 for flexible versions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from storage_engine.core.ports import LogSlice

Buffer = bytes | bytearray | memoryview | LogSlice
"""A piece of an outgoing frame. Only the transport reads the bytes of a LogSlice."""

Message = TypeVar("Message")
Req = TypeVar("Req")
Resp = TypeVar("Resp")

Decoded = TypeVar("Decoded", covariant=True)

MAX_ITEMS = 250_000
"""The most items in all arrays of one message: more than the 200,000 partitions that a cluster of
Kafka with ZooKeeper carried. An item of two bytes becomes an object of hundreds, so without this
limit a frame of 100 MiB would take 10 GiB; with it, some 0.1 GiB and a second.
"""


class LongMessageError(Exception):
    """A message has more items than the caller reads at once. The message may still be valid."""


class Decode(Protocol[Decoded]):
    """Reads one whole message. Its record batches are slices of `body`, not copies."""

    def __call__(self, version: int, body: memoryview, most_items: int = MAX_ITEMS, /) -> Decoded:
        """InvalidRequestError for anything that is not exactly one message; LongMessageError where
        it has more items than `most_items`."""
        ...


Encode = Callable[[int, Message], list[Buffer]]
"""(version, message) -> pieces of the body. The first is no LogSlice. Records are not copied."""


class VersionRange(NamedTuple):
    """Versions of an API, both ends inclusive."""

    min_version: int
    max_version: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min_version <= version <= self.max_version

    def __str__(self) -> str:
        return f"{self.min_version}-{self.max_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSpec(Generic[Req, Resp]):
    """One API, with the types of its request and its response."""

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible_version: int | None
    """The first version with compact lengths, tagged fields, request header 2 and response header
    1."""

    decode_request: Decode[Req]
    encode_request: Encode[Req]
    decode_response: Decode[Resp]
    encode_response: Encode[Resp]

    @property
    def versions(self) -> VersionRange:
        return VersionRange(self.min_version, self.max_version)

    def is_flexible(self, version: int) -> bool:
        return self.first_flexible_version is not None and version >= self.first_flexible_version


AnyApi = ApiSpec[Any, Any]
"""An API that is known at run time only."""


def newest_common_version(spec: AnyApi, served: Sequence[int]) -> int | None:
    """Return the newest version that `spec` and a server of `served` (min, max) share, or None."""
    newest = min(spec.max_version, served[1])
    return newest if newest >= max(spec.min_version, served[0]) else None
