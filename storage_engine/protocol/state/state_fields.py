"""Reads keys and values of coordinators' records. Bytes are trusted no further than they can be
read; anything else is a CorruptRecordError that names the log."""

import struct
from collections.abc import Callable
from typing import TypeVar

from storage_engine.core.errors import CorruptRecordError, InvalidRequestError
from storage_engine.protocol.apis.wire import INT16, Reader

Item = TypeVar("Item")


class StateFields:
    """The decoder of keys and values of one kind of log."""

    def __init__(self, log: str) -> None:
        self._log = log

    def version(self, data: bytes, what: str) -> int:
        """Return the int16 with which keys and values begin."""
        if len(data) < INT16.size:
            raise self.corrupt(f"a {what}", f"it has {len(data)} bytes")
        return int(INT16.unpack_from(data)[0])

    def decoded(
        self, what: str, data: bytes, flexible: bool, read: Callable[[Reader], Item]
    ) -> Item:
        """Return the result of `read`, which has to read all of the data."""
        reader = Reader(memoryview(data), flexible=flexible)
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
