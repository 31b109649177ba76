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
from typing import NoReturn, Protocol, TypeVar
from uuid import UUID

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis.registry import APIS
from storage_engine.protocol.apis.spec import (
    MAX_ITEMS,
    ApiSpec,
    Decode,
    Encode,
    LongMessageError,
    Req,
    Resp,
)

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

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
FLOAT64 = struct.Struct(">d")

_ONE_BYTE = 0x7F
"""A smaller length or count is one byte as an unsigned varint: nearly all are, and each message has
many, so that they are read and written without a call."""
_UVARINTS = [bytes([value]) for value in range(_ONE_BYTE + 1)]

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

    It raises InvalidRequestError, struct.error, IndexError or UnicodeDecodeError; the decoders that
    `coded` makes turn all of them into the first.
    """

    __slots__ = ("data", "end", "flexible", "items_left", "most_items", "position")

    def __init__(
        self,
        data: memoryview,
        *,
        flexible: bool,
        position: int = 0,
        most_items: int = MAX_ITEMS,
    ) -> None:
        self.data = data
        self.flexible = flexible
        self.position = position
        self.end = len(data)
        self.items_left = self.most_items = most_items

    def within(self, field: memoryview, position: int = 0) -> "Reader":
        """Return a reader of a tagged field, which has what is left of the message's items."""
        inner = Reader(field, flexible=True, position=position, most_items=self.most_items)
        inner.items_left = self.items_left
        return inner

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
        # Here and not in a function: nearly all are short.
        start = self.position + 1
        if self.flexible and 0 < (size := self.data[start - 1]) <= _ONE_BYTE:
            end = start + size - 1
            if end <= self.end:
                self.position = end
                return str(self.data[start:end], "utf-8")
        raw = self._string_bytes()
        if raw is None:
            raise InvalidRequestError("a string is null where none may be")
        return str(raw, "utf-8")

    def nullable_string(self) -> str | None:
        # Here and not in a function: most of them are null.
        if self.flexible and self.data[self.position] == 0:
            self.position += 1
            return None
        raw = self._string_bytes()
        return None if raw is None else str(raw, "utf-8")

    def name(self) -> str:
        """Read a string that is expected to repeat (a topic, a host)."""
        raw = self._string_bytes()
        if raw is None:
            raise InvalidRequestError("a name is null where none may be")
        # Here and not in a function: nearly all are known.
        return _names.get(encoded := bytes(raw)) or name_from(encoded)

    def nullable_name(self) -> str | None:
        raw = self._string_bytes()
        return None if raw is None else name_from(bytes(raw))

    def records(self) -> memoryview | None:
        """Read record batches as a slice of the message, not a copy."""
        size = self.uvarint() - 1 if self.flexible else self.int32()
        return None if size == -1 else self._take(size)

    def count(self, item_bytes: int, least: int = 0) -> int:
        """Read the length of an array whose items take at least `item_bytes` each. `least`: -1
        where it may be null, which has this length."""
        if not self.flexible:
            count = self.int32()
        elif (count := self.data[self.position] - 1) < _ONE_BYTE:
            self.position += 1
        else:
            count = self.uvarint() - 1
        if count < least or count * item_bytes > self.end - self.position:
            if count == -1:
                raise InvalidRequestError("an array is null where none may be")
            raise InvalidRequestError(
                f"an array says it has {count} items, {self.end - self.position} bytes are left"
            )
        if count > self.items_left:
            self._too_many_items()
        if count > 0:
            self.items_left -= count
        return count

    def spend(self, items: int) -> None:
        """Count what a tagged field has as so many items of the message."""
        if items > self.items_left:
            self._too_many_items()
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
            self._too_many_items()
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
        if not self.flexible:
            size = self.int16()
        elif (size := self.data[self.position] - 1) < _ONE_BYTE:
            self.position += 1
        else:
            size = self.uvarint() - 1
        start = self.position
        if 0 <= size <= self.end - start:
            self.position = end = start + size
            return self.data[start:end]
        return None if size == -1 else self._take(size)

    def _take(self, size: int) -> memoryview:
        start = self.position
        end = start + size
        if size < 0 or end > self.end:
            raise InvalidRequestError(f"a length says {size} bytes, {self.end - start} are left")
        self.position = end
        return self.data[start:end]

    def _too_many_items(self) -> NoReturn:
        if self.most_items < MAX_ITEMS:
            raise LongMessageError
        raise InvalidRequestError(f"it has more than {MAX_ITEMS} items")


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
    name, versions, first_flexible, _ = APIS[key]
    flexible_from = versions.max_version + 1 if first_flexible is None else first_flexible

    def decoder(
        what: str, read: Callable[[Reader, int], Item], *, rest_allowed: bool
    ) -> Decode[Item]:
        def decode(version: int, body: memoryview, most_items: int = MAX_ITEMS, /) -> Item:
            reader = Reader(body, flexible=version >= flexible_from, most_items=most_items)
            problem: str | InvalidRequestError = "it ends too early"
            try:
                message = read(reader, version)
                if reader.position != reader.end and not (
                    rest_allowed and reader.position < reader.end
                ):
                    reader.finish()
                return message
            except InvalidRequestError as error:
                problem = error
            except UnicodeDecodeError:
                problem = "a string is not UTF-8"
            except (struct.error, IndexError):
                pass
            malformed(f"{name} {what} of version {version}", problem)

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
    if 0 <= value < 0x80:
        return _UVARINTS[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def count(value: int, flexible: bool) -> bytes:
    """Encode the length of an array; -1 for null."""
    if not flexible:
        return INT32.pack(value)
    return _UVARINTS[value + 1] if -1 <= value < _ONE_BYTE else uvarint(value + 1)


def string(value: str, flexible: bool) -> bytes:
    """Encode a string that is not null. ValueError when it is longer than the protocol can
    carry."""
    raw = value.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(
            f"a string of {len(raw)} bytes does not fit the protocol's limit of {MAX_STRING_BYTES}"
        )
    if not flexible:
        return INT16.pack(len(raw)) + raw
    return (_UVARINTS[len(raw) + 1] if len(raw) < _ONE_BYTE else uvarint(len(raw) + 1)) + raw


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
