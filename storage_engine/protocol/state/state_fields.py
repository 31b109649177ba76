"""Reads and writes keys and values of coordinators' records, each behind its version as int16.
Bytes are trusted no further than they can be read; anything else is a CorruptRecordError that names
the log."""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from storage_engine.core.errors import CorruptRecordError, InvalidRequestError
from storage_engine.protocol.apis.struct_codec import Layout, Record
from storage_engine.protocol.apis.wire import INT16, Reader, Writer

Item = TypeVar("Item")
Key = TypeVar("Key")


class StateFields(Generic[Key]):
    """The codec of one kind of log."""

    def __init__(self, log: str, keys: Mapping[int, Layout[Any]]) -> None:
        """`keys`: by version; of several versions of a key the last is written."""
        self._log = log
        self._keys = keys
        self._versions = {layout.record_class: version for version, layout in keys.items()}

    def encode_key(self, key: Key) -> bytes:
        version = self._versions[type(key)]
        return self.encode(self._keys[version], version, key, flexible=False)

    def decode_key(self, data: bytes) -> Key | None:
        """Decode a key; None for one of an unknown version, which a later version wrote."""
        version = self.version(data, "key")
        layout = self._keys.get(version)
        if layout is None:
            return None
        key: Key = self.decoded("a key", data, False, lambda reader: layout.read(reader, version))
        return key

    @staticmethod
    def encode(layout: Layout[Record], version: int, record: Record, *, flexible: bool) -> bytes:
        writer = Writer(flexible=flexible)
        writer.int16(version)
        layout.write(writer, version, record)
        return bytes(writer.data)

    def version(self, data: bytes, what: str) -> int:
        """Return the int16 with which keys and values begin."""
        if len(data) < INT16.size:
            raise self.corrupt(f"a {what}", f"it has {len(data)} bytes")
        return int(INT16.unpack_from(data)[0])

    def decoded(
        self, what: str, data: bytes, flexible: bool, read: Callable[[Reader], Item]
    ) -> Item:
        """Return the result of `read`, which has to read all of the data behind the version."""
        reader = Reader(memoryview(data), flexible=flexible, position=INT16.size)
        try:
            item = read(reader)
            reader.finish()
        except InvalidRequestError as error:
            raise self.corrupt(what, str(error)) from None
        except (struct.error, IndexError):
            raise self.corrupt(what, "it ends too early") from None
        except UnicodeDecodeError:
            raise self.corrupt(what, "a string is not UTF-8") from None
        return item

    def corrupt(self, what: str, reason: str) -> CorruptRecordError:
        return CorruptRecordError(f"{what} in the {self._log} is damaged: {reason}")
