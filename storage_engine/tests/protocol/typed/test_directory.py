"""The directory of a typed batch: its lengths, statistics and bounds."""

import pytest

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.typed.column_types import FloatColumn, StringColumn
from storage_engine.protocol.records.record_batch import HEADER_BYTES
from storage_engine.protocol.typed.directory import (
    decode_bound,
    encode_bound,
    read_directory,
    statistics_of,
)
from storage_engine.tests.protocol.typed.logs import encoded, rows_from, schema_of


def test_every_length_of_a_directory_is_bounded():
    schema = schema_of("id BIGINT NOT NULL, s STRING")
    (batch,) = encoded(rows_from(schema, [{"id": 1, "s": "x"}, {"id": 2, "s": None}]), schema)
    section = bytes(batch.data[HEADER_BYTES:])
    size = read_directory(section).size
    for end in range(size):
        with pytest.raises(CorruptRecordError):
            read_directory(section[:end])
    assert read_directory(section[:size], section_bytes=len(section)).size == size
    for wrong in (len(section) - 1, len(section) + 1):
        with pytest.raises(CorruptRecordError, match="bytes behind it"):
            read_directory(section[:size], section_bytes=wrong)


def test_statistics_are_what_the_encoder_saw():
    schema = schema_of("s STRING, f DOUBLE, e DOUBLE, b BINARY, dec DECIMAL(38,3), ok BOOLEAN")
    rows = [
        {"s": "é" * 20, "f": 2.5, "e": float("nan"), "b": b"\xff" * 40, "dec": None, "ok": True},
        {"s": "b", "f": float("nan"), "e": None, "b": b"\xff" * 40, "dec": None, "ok": False},
        {"s": "a" * 40, "f": -1.0, "e": float("nan"), "b": b"", "dec": None, "ok": True},
    ]
    (batch,) = encoded(rows_from(schema, rows), schema)
    directory = read_directory(batch.data[HEADER_BYTES:])
    found = {
        c.name: statistics_of(directory.column(c.column_id), c.type, 3)
        for c in schema.latest.columns
    }
    s, f, e, b = (found[name] for name in "sfeb")
    assert (s.minimum, s.minimum_is_exact) == ("a" * 32, False)
    assert (s.maximum, s.maximum_is_exact) == ("é" * 16, False)
    assert (f.minimum, f.maximum, f.has_nan) == (-1.0, 2.5, True)
    assert (e.minimum, e.maximum, e.has_nan, e.null_count) == (None, None, True, 1)
    assert (b.minimum, b.maximum, b.maximum_is_exact) == (b"", b"\xff" * 32, False)
    assert (found["dec"].null_count, found["dec"].minimum) == (3, None)
    assert (found["ok"].minimum, found["ok"].maximum) == (False, True)


def test_bounds_of_decimals_are_exact():
    (column,) = schema_of("dec DECIMAL(38,10)").latest.columns
    for value in ("-9999999999999999999999999999.9999999999", "0E-10", "1.5000000000"):
        from decimal import Decimal

        data, is_shortened = encode_bound(Decimal(value), column.type)
        assert len(data) == 16 and not is_shortened
        assert decode_bound(data, column.type) == Decimal(value)


@pytest.mark.parametrize(
    ("data", "kind"), [(b"1234567", FloatColumn(64)), (b"\xff", StringColumn())]
)
def test_bounds_that_do_not_fit_their_type_are_damage(data, kind):
    with pytest.raises(CorruptRecordError, match="does not fit the column's type"):
        decode_bound(data, kind)
