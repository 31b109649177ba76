"""A filter in bytes, as a Fetch request carries it.

    filter         bytes  meaning
    version        1      1
    count          2      of comparisons, all of which must hold
    comparisons

    comparison     bytes
    column_id      4
    operator       1      the number of its Operator
    count          2      of values
    values

    value          bytes
    kind           1      0 boolean, 1 integer, 2 float, 3 string, 4 bytes, 5 decimal
    value                 boolean 1; integer 8; float 8, a double; string and bytes: 4 of their
                          length, then themselves; decimal: 1 its scale, 16 the unscaled value

Big endian. The broker only skips what can't match; the reader applies the same filter to rows.
"""

import struct
from collections.abc import Sequence
from decimal import Context, Decimal

from storage_engine.core.errors import ConfigError, InvalidRequestError
from storage_engine.core.typed.comparisons import MAX_COMPARISONS, Comparison, Literal, Operator
from storage_engine.protocol.records.record_batch import BytesLike

MAX_FILTER_BYTES = 64 << 10
MAX_FILTER_VALUES = 4_000
"""The most values of all comparisons: each is compared with the bounds of each batch."""

_VERSION = 1
_HEAD = struct.Struct(">BH")
_COMPARISON = struct.Struct(">iBH")
_LENGTH = struct.Struct(">I")
_INTEGER = struct.Struct(">q")
_FLOAT = struct.Struct(">d")
_BOOLEAN, _INTEGER_KIND, _FLOAT_KIND, _STRING, _BYTES, _DECIMAL = range(6)
_DECIMAL_BYTES = 16
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_EXACT = Context(prec=60)


def encode_filter(comparisons: Sequence[Comparison]) -> bytes:
    """Return the filter's bytes, none for no comparisons. InvalidRequestError when they are more
    than a broker reads, or a number has too many digits."""
    if not comparisons:
        return b""
    parts = [_HEAD.pack(_VERSION, len(comparisons))]
    for each in comparisons:
        parts.append(_COMPARISON.pack(each.column_id, each.operator, len(each.values)))
        try:
            parts += map(_encode_value, each.values)
        except (OverflowError, ValueError):
            raise InvalidRequestError(
                f"a filter can't carry a value of {each.values!r:.80}: a number may have 38 digits"
            ) from None
    values = sum(len(each.values) for each in comparisons)
    encoded = b"".join(parts)
    _check_size(len(comparisons), values, len(encoded))
    return encoded


def decode_filter(data: BytesLike) -> tuple[Comparison, ...]:
    """Return the comparisons in `data`; InvalidRequestError when it is malformed or too large."""
    if not len(data):
        return ()
    _check_size(0, 0, len(data))
    reader = _Reader(bytes(data))
    try:
        version, count = reader.unpack(_HEAD)
        if version != _VERSION:
            raise InvalidRequestError(
                f"a filter of version {version} is unknown, only {_VERSION} is served"
            )
        _check_size(count, 0, 0)
        comparisons = []
        values = 0
        for _ in range(count):
            column_id, operator, value_count = reader.unpack(_COMPARISON)
            values += value_count
            _check_size(0, values, 0)
            comparisons.append(
                Comparison(
                    column_id=column_id,
                    operator=Operator(operator),
                    values=tuple(_decode_value(reader) for _ in range(value_count)),
                )
            )
    except ConfigError as error:
        raise InvalidRequestError(f"a filter is malformed: {error}") from None
    except (struct.error, ValueError):
        raise InvalidRequestError(
            "a filter is cut off, or has an operator or a value that is unknown here"
        ) from None
    if reader.position != len(reader.data):
        raise InvalidRequestError("bytes are left behind a filter")
    return tuple(comparisons)


def _check_size(comparisons: int, values: int, size: int) -> None:
    if comparisons > MAX_COMPARISONS or values > MAX_FILTER_VALUES or size > MAX_FILTER_BYTES:
        raise InvalidRequestError(
            f"a filter may have at most {MAX_COMPARISONS} comparisons with {MAX_FILTER_VALUES}"
            f" values in {MAX_FILTER_BYTES} bytes: filter by fewer, and the rest after reading"
        )


class _Reader:
    """A position in the bytes of a filter."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        fields = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return fields

    def take(self, size: int) -> bytes:
        taken = self.data[self.position : self.position + size]
        if len(taken) != size:
            raise ValueError("cut off")
        self.position += size
        return taken


def _encode_value(value: Literal) -> bytes:
    match value:
        case bool():
            return bytes((_BOOLEAN, value))
        case int() if _INT64_MIN <= value <= _INT64_MAX:
            return bytes((_INTEGER_KIND,)) + _INTEGER.pack(value)
        case int():
            return _encode_value(Decimal(value))
        case float():
            return bytes((_FLOAT_KIND,)) + _FLOAT.pack(value)
        case str():
            data = value.encode()
            return bytes((_STRING,)) + _LENGTH.pack(len(data)) + data
        case bytes():
            return bytes((_BYTES,)) + _LENGTH.pack(len(value)) + value
        case Decimal():
            exponent = value.as_tuple().exponent
            if not isinstance(exponent, int):
                raise ValueError("not a number")
            scale = max(0, -exponent)
            unscaled = int(value.scaleb(scale, _EXACT))
            return bytes((_DECIMAL, scale)) + unscaled.to_bytes(_DECIMAL_BYTES, "big", signed=True)


def _decode_value(reader: _Reader) -> Literal:
    (kind,) = reader.take(1)
    if kind == _BOOLEAN:
        return bool(reader.take(1)[0])
    if kind == _INTEGER_KIND:
        return int(reader.unpack(_INTEGER)[0])
    if kind == _FLOAT_KIND:
        return float(reader.unpack(_FLOAT)[0])
    if kind in (_STRING, _BYTES):
        data = reader.take(int(reader.unpack(_LENGTH)[0]))
        return data.decode() if kind == _STRING else data
    if kind == _DECIMAL:
        (scale,) = reader.take(1)
        unscaled = int.from_bytes(reader.take(_DECIMAL_BYTES), "big", signed=True)
        return Decimal(unscaled).scaleb(-scale, _EXACT)
    raise ValueError(kind)
