"""Reads and writes keys and values of coordinators' records, each behind its version as int16.
The bytes are not trusted: any damage is a CorruptRecordError that names the log."""

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, TypeVar

from storage_engine.core.errors import CorruptRecordError, InvalidRequestError
from storage_engine.protocol.apis.struct_codec import Record, read_struct, write_struct
from storage_engine.protocol.apis.wire import INT16, Reader, Writer

Item = TypeVar("Item")
Key = TypeVar("Key")


class StateFields(Generic[Key]):
    """The codec of one kind of log."""

    def __init__(self, log: str, keys: Mapping[int, type[Key]]) -> None:
        """`keys`: the class of each version. The last version of a class is written."""
        self.log = log
        self._keys = keys
        self._versions = {kind: version for version, kind in keys.items()}

    def encode_key(self, key: Key) -> bytes:
        version = self._versions[type(key)]
        return self.encode(version, key, flexible=False)

    def decode_key(self, data: bytes) -> Key | None:
        """Decode a key; None for one of an unknown version, which a later version wrote."""
        version = self.version(data, "key")
        kind = self._keys.get(version)
        if kind is None:
            return None
        return self.decoded("a key", data, False, partial(read_struct, kind, version))

    @staticmethod
    def encode(version: int, record: Record, *, flexible: bool) -> bytes:
        writer = Writer(flexible=flexible)
        writer.int16(version)
        write_struct(writer, version, record)
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
        return CorruptRecordError(f"{what} in the {self.log} is damaged: {reason}")
