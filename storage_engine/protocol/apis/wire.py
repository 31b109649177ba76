"""The primitive types of the protocol, read with bounds and written.

Nothing that a peer sends is trusted. Every length and count is checked against the bytes left
before anything is allocated, varints end within five bytes, and a message must use every byte of
its frame.

    type            plain                     flexible (KIP-482)
    string, bytes   int16 / int32 length      uvarint length + 1
    array           int32 count               uvarint count + 1
    null            length or count -1        uvarint 0
    tagged fields   none                      uvarint count, then (uvarint tag, uvarint size, bytes)

Source: https://kafka.apache.org/protocol#protocol_types, KIP-482.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import NoReturn, Protocol, TypeVar
from uuid import UUID

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis.registry import APIS
from storage_engine.protocol.apis.spec import ApiSpec, Decode, Encode, Req, Resp

Item = TypeVar("Item")

NO_TOPIC_ID = UUID(int=0)
"""The topic id of a topic without an id, or of one that is requested by name."""

MAX_UVARINT = 0xFFFF_FFFF
MAX_STRING_BYTES = 32_767
"""Longest string: its length is an int16 in the versions that are not flexible."""

NAMES_CACHED = 4096
NAME_CACHED_MAX_BYTES = 249
"""The longest name that is cached. Names repeat in every request, so at most 4096 decoded names of
at most 249 bytes (the longest legal topic name) are kept, about 2 MiB. A peer that sends more only
evicts others.
"""

MAX_ITEMS = 250_000
"""The most items in all arrays of one message: more than the 200,000 partitions that a cluster of
Kafka with ZooKeeper carried. An item of two bytes becomes an object of hundreds, so without this
limit a frame of 100 MiB would take 10 GiB; with it, some 0.1 GiB and a second.
"""


class LongMessageError(Exception):
    """A message has more items than the caller reads at once; it may be valid all the same."""


_items_allowed: ContextVar[int] = ContextVar("items_allowed", default=MAX_ITEMS)
"""The limit for messages that this thread reads, all legal items by default."""

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
FLOAT64 = struct.Struct(">d")
UINT8 = struct.Struct(">B")

_names: dict[bytes, str] = {}


def name_from(raw: bytes) -> str:
    """Decode a name that will come again. UnicodeDecodeError for bytes that are not UTF-8."""
    name = _names.get(raw)
    if name is None:
        name = raw.decode()
        if len(raw) <= NAME_CACHED_MAX_BYTES:
            if len(_names) >= NAMES_CACHED:
                _names.clear()
            _names[raw] = name
    return name


def malformed(what: str, cause: Exception | str) -> NoReturn:
    """Raise InvalidRequestError for bytes that are not `what`."""
    raise InvalidRequestError(f"malformed {what}: {cause}; the connection is closed") from None


class Reader:
    """A cursor over one message.

    It raises InvalidRequestError, struct.error, IndexError or UnicodeDecodeError; `decode_with`
    turns all of them into the first.
    """

    __slots__ = ("data", "end", "flexible", "items_left", "position")

    def __init__(self, data: memoryview, *, flexible: bool, position: int = 0) -> None:
        self.data = data
        self.flexible = flexible
        self.position = position
        self.end = len(data)
        self.items_left = _items_allowed.get()

    def int8(self) -> int:
        value = self.data[self.position]
        self.position += 1
        return value - 256 if value > 127 else value

    def boolean(self) -> bool:
        return self.int8() != 0

    def int16(self) -> int:
        position = self.position
        self.position = position + 2
        return int(INT16.unpack_from(self.data, position)[0])

    def int32(self) -> int:
        position = self.position
        self.position = position + 4
        return int(INT32.unpack_from(self.data, position)[0])

    def int64(self) -> int:
        position = self.position
        self.position = position + 8
        return int(INT64.unpack_from(self.data, position)[0])

    def float64(self) -> float:
        position = self.position
        self.position = position + 8
        return float(FLOAT64.unpack_from(self.data, position)[0])

    def uuid_bytes(self) -> bytes:
        """Return the 16 bytes of a UUID."""
        return bytes(self._take(16))

    def uuid(self) -> UUID:
        raw = self.uuid_bytes()
        return NO_TOPIC_ID if raw == _ZERO_UUID_BYTES else UUID(bytes=raw)

    def uvarint(self) -> int:
        data, position = self.data, self.position
        byte = data[position]
        if byte < 0x80:
            self.position = position + 1
            return byte
        value = byte & 0x7F
        for shift in (7, 14, 21, 28):
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise InvalidRequestError("a varint is longer than five bytes")
        if value > MAX_UVARINT:
            raise InvalidRequestError("a varint is larger than 32 bits")
        self.position = position + 1
        return value

    def string(self) -> str:
        raw = self._string_bytes()
        if raw is None:
            raise InvalidRequestError("a string is null where none may be")
        return str(raw, "utf-8")

    def nullable_string(self) -> str | None:
        raw = self._string_bytes()
        return None if raw is None else str(raw, "utf-8")

    def name(self) -> str:
        """Read a string that is expected to repeat (a topic, a host)."""
        raw = self._string_bytes()
        if raw is None:
            raise InvalidRequestError("a name is null where none may be")
        return name_from(bytes(raw))

    def nullable_name(self) -> str | None:
        raw = self._string_bytes()
        return None if raw is None else name_from(bytes(raw))

    def records(self) -> memoryview | None:
        """Read record batches as a slice of the message, not a copy."""
        size = self.uvarint() - 1 if self.flexible else self.int32()
        return None if size == -1 else self._take(size)

    def count(self, item_bytes: int) -> int:
        """Read the length of an array that can't be null and whose items take at least `item_bytes`
        each."""
        count = self.nullable_count(item_bytes)
        if count < 0:
            raise InvalidRequestError("an array is null where none may be")
        return count

    def nullable_count(self, item_bytes: int) -> int:
        """Read a length as `count` does, or -1 for null."""
        count = self.uvarint() - 1 if self.flexible else self.int32()
        if count < -1 or count * item_bytes > self.end - self.position:
            raise InvalidRequestError(
                f"an array says it has {count} items, {self.end - self.position} bytes are left"
            )
        if count > self.items_left:
            _too_many_items()
        self.items_left -= count
        return count

    def spend(self, items: int) -> None:
        """Count what a tagged field has as so many items of the message."""
        if items > self.items_left:
            _too_many_items()
        self.items_left -= items

    def array(self, item_bytes: int, read_item: Callable[[], Item]) -> list[Item]:
        return [read_item() for _ in range(self.count(item_bytes))]

    def int32s(self) -> list[int]:
        """Read an array of int32."""
        count = self.count(4)
        position = self.position
        self.position = position + 4 * count
        return list(struct.unpack_from(f">{count}i", self.data, position))

    def tags(self) -> Mapping[int, memoryview]:
        """Read the tagged fields here, by tag; none where the version is not flexible."""
        if not self.flexible:
            return _NO_TAGS
        # Here and not in a function: nearly all are empty, and every item has some.
        if self.data[self.position] == 0:
            self.position += 1
            return _NO_TAGS
        count = self.uvarint()
        if count * 2 > self.end - self.position:
            raise InvalidRequestError(f"{count} tagged fields can't fit in the bytes left")
        if count > self.items_left:
            _too_many_items()
        self.items_left -= count
        tags: dict[int, memoryview] = {}
        for _ in range(count):
            tag = self.uvarint()
            tags[tag] = self._take(self.uvarint())
        return tags

    def finish(self) -> None:
        """Raise when bytes of the message are left."""
        if self.position != self.end:
            raise InvalidRequestError(
                f"{self.end - self.position} bytes are left over"
                if self.position < self.end
                else f"{self.position - self.end} bytes are missing"
            )

    def _string_bytes(self) -> memoryview | None:
        size = self.uvarint() - 1 if self.flexible else self.int16()
        return None if size == -1 else self._take(size)

    def _take(self, size: int) -> memoryview:
        start = self.position
        end = start + size
        if size < 0 or end > self.end:
            raise InvalidRequestError(f"a length says {size} bytes, {self.end - start} are left")
        self.position = end
        return self.data[start:end]


def decode_short(
    decode: Callable[[int, memoryview], Item], version: int, body: memoryview, most_items: int
) -> Item:
    """Read a message of at most so many items; LongMessageError when it has more."""
    before = _items_allowed.set(most_items)
    try:
        return decode(version, body)
    finally:
        _items_allowed.reset(before)


def _too_many_items() -> NoReturn:
    if _items_allowed.get() < MAX_ITEMS:
        raise LongMessageError
    raise InvalidRequestError(f"it has more than {MAX_ITEMS} items")


def decode_with(
    what: str,
    data: memoryview,
    flexible: bool,
    read: Callable[[Reader], Item],
    *,
    rest_allowed: bool = False,
) -> Item:
    """Read one whole message; InvalidRequestError for anything that is not exactly one.
    `rest_allowed`: what is left over is ignored."""
    reader = Reader(data, flexible=flexible)
    try:
        message = read(reader)
        if not rest_allowed or reader.position > reader.end:
            reader.finish()
    except InvalidRequestError as error:
        malformed(what, error)
    except (struct.error, IndexError):
        malformed(what, "it ends too early")
    except UnicodeDecodeError:
        malformed(what, "a string is not UTF-8")
    return message


def coded(
    key: int,
    read_request: Callable[[Reader, int], Req],
    encode_request: Encode[Req],
    read_response: Callable[[Reader, int], Resp],
    encode_response: Encode[Resp],
    *,
    is_lenient: bool = False,
) -> ApiSpec[Req, Resp]:
    """Return the spec of an API in the registry's table. The readers get the version. Left over
    bytes are ignored in responses, as other clients do (librdkafka's mock cluster sends a byte too
    many), and with `is_lenient` in requests, of clients that are known to be untidy."""
    name, versions, first_flexible = APIS[key]

    def decoder(
        what: str, read: Callable[[Reader, int], Item], *, rest_allowed: bool
    ) -> Decode[Item]:
        def decode(version: int, body: memoryview) -> Item:
            return decode_with(
                f"{name} {what} of version {version}",
                body,
                first_flexible is not None and version >= first_flexible,
                lambda reader: read(reader, version),
                rest_allowed=rest_allowed,
            )

        return decode

    return ApiSpec(
        key=key,
        name=name,
        min_version=versions.min_version,
        max_version=versions.max_version,
        first_flexible_version=first_flexible,
        decode_request=decoder("request", read_request, rest_allowed=is_lenient),
        encode_request=encode_request,
        decode_response=decoder("response", read_response, rest_allowed=True),
        encode_response=encode_response,
    )


class Writer:
    """Builds one message. Values out of range raise struct.error or ValueError: our own bugs."""

    __slots__ = ("data", "flexible")

    def __init__(self, *, flexible: bool) -> None:
        self.data = bytearray()
        self.flexible = flexible

    def int8(self, value: int) -> None:
        self.data.append(value & 0xFF)

    def boolean(self, value: bool) -> None:
        self.data.append(1 if value else 0)

    def int16(self, value: int) -> None:
        self.data += INT16.pack(value)

    def int32(self, value: int) -> None:
        self.data += INT32.pack(value)

    def int64(self, value: int) -> None:
        self.data += INT64.pack(value)

    def uuid(self, value: UUID) -> None:
        self.data += value.bytes

    def string(self, value: str) -> None:
        self.data += string(value, self.flexible)

    def nullable_string(self, value: str | None) -> None:
        if value is not None:
            self.data += string(value, self.flexible)
        else:
            self.data += b"\x00" if self.flexible else b"\xff\xff"

    def count(self, value: int) -> None:
        """Write the length of an array; -1 for null."""
        self.data += count(value, self.flexible)

    def int32s(self, values: Sequence[int]) -> None:
        self.data += count(len(values), self.flexible)
        self.data += struct.pack(f">{len(values)}i", *values)

    def tags(self, tags: Iterable[tuple[int, bytes]] = ()) -> None:
        """Write tagged fields in ascending order of tag; nothing where the version is not
        flexible."""
        if not self.flexible:
            return
        fields = list(tags)
        self.data += uvarint(len(fields))
        for tag, value in fields:
            self.data += uvarint(tag) + uvarint(len(value)) + value


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return UINT8.pack(value)
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def count(value: int, flexible: bool) -> bytes:
    """Encode the length of an array; -1 for null."""
    return uvarint(value + 1) if flexible else INT32.pack(value)


def string(value: str, flexible: bool) -> bytes:
    """Encode a string that is not null. ValueError when it is longer than the protocol can
    carry."""
    raw = value.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(
            f"a string of {len(raw)} bytes does not fit the protocol's limit of {MAX_STRING_BYTES}"
        )
    return (uvarint(len(raw) + 1) if flexible else INT16.pack(len(raw))) + raw


def nullable_string(value: str | None, flexible: bool) -> bytes:
    """Encode a string or null."""
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    return string(value, flexible)


class OfTopic(Protocol):
    """Anything that belongs to a topic."""

    @property
    def topic(self) -> str: ...


OfTopicT = TypeVar("OfTopicT", bound=OfTopic)


def group_runs(items: Iterable[OfTopicT]) -> list[tuple[str, list[OfTopicT]]]:
    """Return runs of the same topic: the order of the items is kept, so a topic may come twice."""
    groups: list[tuple[str, list[OfTopicT]]] = []
    last: str | None = None
    for item in items:
        topic = item.topic
        if topic != last:
            groups.append((topic, []))
            last = topic
        groups[-1][1].append(item)
    return groups


def group_by_topic(items: Sequence[OfTopicT]) -> list[tuple[str, list[OfTopicT]]]:
    """Return each topic once, in the order in which it first comes."""
    groups: dict[str, list[OfTopicT]] = {}
    for item in items:
        groups.setdefault(item.topic, []).append(item)
    return list(groups.items())


_ZERO_UUID_BYTES = bytes(16)
_NO_TAGS: Mapping[int, memoryview] = {}
