"""Reads one record value by value, for the reason why it is damaged."""

from storage_engine.core.printable import printable
from storage_engine.core.schemas.avro.schema import (
    Array,
    AvroSchema,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Union,
)

_FIXED_SIZES = {"float": 4, "double": 8, "boolean": 1, "null": 0}
_INT_BITS, _LONG_BITS = 32, 64


class DamagedValueError(Exception):
    """The reason."""


class TooManyValuesError(Exception):
    """The record has more values than may be read."""


def entry_of(found: Map) -> Record:
    """Return the type of a map's entries: a record of the key and the value."""
    fields = (Field(name="key", type=Primitive("string")), Field(name="value", type=found.values))
    return Record(full_name="entry", fields=fields)


class Walk:
    """Reads at most `steps` values of `body`."""

    def __init__(self, schema: AvroSchema, body: bytes, *, steps: int) -> None:
        self._schema = schema
        self._body = body
        self._at = 0
        self._most_steps = self._steps_left = steps

    @property
    def steps(self) -> int:
        """The values that were read."""
        return self._most_steps - self._steps_left

    @property
    def left(self) -> int:
        return len(self._body) - self._at

    def value(self, avro_type: AvroType, path: str) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TooManyValuesError
        found = self._schema.resolve(avro_type)
        match found:
            case Primitive():
                self._primitive(found, path)
            case Fixed():
                self._number(self._take(found.size, path), found.logical, path)
            case Enum():
                self._choice(len(found.symbols), "symbol", path)
            case Union():
                number = self._choice(len(found.branches), "branch", path)
                self.value(found.branches[number], path)
            case Record():
                for each in found.fields:
                    self.value(each.type, f"{path}.{each.name}" if path else each.name)
            case Array():
                self._blocks(found.items, path)
            case Map():
                self._blocks(entry_of(found), path)

    def _primitive(self, found: Primitive, path: str) -> None:
        match found.name:
            case "int":
                self._varint(path, _INT_BITS)
            case "long":
                number = self._varint(path, _LONG_BITS)
                millis = (Logical.TIMESTAMP_MILLIS, Logical.LOCAL_TIMESTAMP_MILLIS)
                if found.logical in millis and not -(1 << 63) <= number * 1000 < 1 << 63:
                    raise _wrong(path, f"is {number} ms, which no timestamp can be")
            case "boolean":
                if self._take(1, path) not in (b"\0", b"\1"):
                    raise _wrong(path, f"is the byte {self._body[self._at - 1]}, no boolean")
            case "string" | "bytes":
                data = self._take(self._varint(path, _LONG_BITS), path)
                self._number(data, found.logical, path)
                if found.name == "string":
                    _check_text(data, path)
            case _:
                self._take(_FIXED_SIZES[found.name], path)

    def _number(self, data: bytes, logical: Decimal | Logical | None, path: str) -> None:
        if isinstance(logical, Decimal):
            number = int.from_bytes(data, "big", signed=True)
            if abs(number) >= 10**logical.precision:
                raise _wrong(path, f"has more than {logical.precision} digits")

    def _blocks(self, item: AvroType, path: str) -> None:
        number = 0
        while count := self._varint(path, _LONG_BITS):
            stop = None
            if count < 0:
                size = self._varint(path, _LONG_BITS)
                count, stop = -count, self._at + size
            for _ in range(count):
                self.value(item, f"{path}[{number}]")
                number += 1
            if stop is not None and stop != self._at:
                raise _wrong(path, "has a block that does not end where it says")

    def _choice(self, count: int, what: str, path: str) -> int:
        number = self._varint(path, _LONG_BITS)
        if not 0 <= number < count:
            raise _wrong(path, f"has {what} {number}, and there are {count}")
        return number

    def _varint(self, path: str, bits: int) -> int:
        encoded = 0
        for index in range(10):
            if not self.left:
                raise _wrong(path, "is cut off")
            byte = self._body[self._at]
            self._at += 1
            encoded |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                number = (encoded >> 1) ^ -(encoded & 1)
                if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
                    raise _wrong(path, f"has a number of more than {bits} bits")
                return number
        raise _wrong(path, f"has a number of more than {bits} bits")

    def _take(self, size: int, path: str) -> bytes:
        if not 0 <= size <= self.left:
            raise _wrong(path, f"has {size} bytes, and {self.left} are left")
        data = self._body[self._at : self._at + size]
        self._at += size
        return data


def _check_text(data: bytes, path: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise _wrong(path, f"is no text in UTF-8 from byte {error.start} on") from None


def _wrong(path: str, what: str) -> DamagedValueError:
    return DamagedValueError(f"'{printable(path[-200:])}' {what}" if path else f"it {what}")
