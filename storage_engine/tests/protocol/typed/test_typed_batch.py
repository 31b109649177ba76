"""What a leader checks of a typed batch."""

from uuid import UUID

import pyarrow as pa
import pytest

from storage_engine.core.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    RecordTooLargeError,
)
from storage_engine.core.typed.column_types import FloatColumn, StringColumn
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import UnknownSchemaVersionError
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    TYPED_BIT,
    empty_batch,
    read_header,
    seal,
)
from storage_engine.protocol.typed.directory import (
    OFFSETS,
    TOMBSTONES,
    decode_bound,
    encode_bound,
    encode_directory,
    read_directory,
    statistics_of,
)
from storage_engine.protocol.typed.typed_batch import check_typed_batch, is_typed
from storage_engine.tests.protocol.typed.logs import (
    TOPIC_ID,
    encoded,
    rows_from,
    schema_of,
)

SCHEMA = schema_of("id BIGINT NOT NULL, s STRING", ["id"])


def good_batch(schema=SCHEMA, **options):
    rows = rows_from(SCHEMA, [{"id": 1, "s": "x"}, {"id": 2, "s": None}])
    (batch,) = encoded(rows, schema, **options)
    return bytearray(batch.data)


def changed(batch, **head):
    """The batch with another directory; its `entries` are a function of the present ones."""
    section = batch[HEADER_BYTES:]
    directory = read_directory(section)
    entries = head.pop("entries", lambda entries: entries)(directory.entries)
    fields = {"topic_id": TOPIC_ID, "schema_version": 1, "rows": 2, **head}
    columns = b"".join(
        bytes(section[directory.size + e.place :][: e.stored_bytes]) for e in entries
    )
    new = batch[:HEADER_BYTES] + encode_directory(entries=entries, **fields) + columns
    seal(new, 0, read_header(batch)._replace(length=len(new) - LENGTH_END))
    return new


def check(batch, schema=SCHEMA, topic_id=TOPIC_ID):
    check_typed_batch(read_header(batch), memoryview(batch), schema=schema, topic_id=topic_id)


def test_a_batch_of_our_encoder_is_accepted():
    check(good_batch())
    check(good_batch(tombstones=pa.array([False, True])))


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (
            changed(good_batch(), entries=lambda e: [e[0]._replace(column_id=9), e[1]]),
            InvalidRecordError,
            "column of id 9, which version 1",
        ),
        (
            changed(good_batch(), entries=lambda e: [*e, e[0]._replace(column_id=OFFSETS)]),
            InvalidRecordError,
            "column of offsets",
        ),
        (
            changed(good_batch(), entries=lambda e: [e[1]]),
            InvalidRecordError,
            "2 nulls in the column 'id', which is NOT NULL",
        ),
        (
            changed(good_batch(), entries=lambda e: [e[0]._replace(null_count=1), e[1]]),
            InvalidRecordError,
            "1 nulls in the column 'id'",
        ),
        (
            changed(
                good_batch(tombstones=pa.array([False, True])),
                entries=lambda e: [each for each in e if each.column_id != 1],
            ),
            InvalidRecordError,
            "2 nulls in the column 'id'",
        ),
        (
            changed(
                good_batch(tombstones=pa.array([False, True])),
                entries=lambda e: [
                    each._replace(null_count=1) if each.column_id == TOMBSTONES else each
                    for each in e
                ],
            ),
            InvalidRecordError,
            "nulls among its timestamps or tombstones",
        ),
        (changed(good_batch(), rows=3), InvalidRecordError, "2 rows of codec 0, its directory 3"),
        (
            changed(good_batch(), schema_version=2),
            UnknownSchemaVersionError,
            "version 2 of the topic's schema",
        ),
        (
            changed(
                good_batch(),
                entries=lambda e: [e[0]._replace(codec=4, raw_bytes=65 << 20), e[1]],
            ),
            RecordTooLargeError,
            "68157",
        ),
        (
            changed(good_batch(), entries=lambda e: [e[0]._replace(codec=1), e[1]]),
            InvalidRecordError,
            "impossible numbers",
        ),
        (
            changed(good_batch(), entries=lambda e: [e[0], e[0]]),
            InvalidRecordError,
            "its 2 columns, 1 of them different",
        ),
    ],
)
def test_what_a_producer_may_not_send_is_refused(batch, error, message):
    with pytest.raises(error, match=message):
        check(batch)


def test_tombstones_need_a_key():
    batch = good_batch(tombstones=pa.array([False, True]))
    with pytest.raises(InvalidRecordError, match="the topic has no key columns"):
        check(batch, schema_of("id BIGINT NOT NULL, s STRING"))


def test_a_batch_for_a_topic_of_the_same_name_that_is_gone_is_refused():
    with pytest.raises(KafkaError, match="it was created anew") as found:
        check(good_batch(), topic_id=UUID(int=8))
    assert found.value.code is ErrorCode.UNKNOWN_TOPIC_ID and found.value.retriable


def test_a_hidden_column_may_be_missing():
    schema = schema_of("id BIGINT NOT NULL, s STRING NOT NULL", ["id"])
    later = schema.evolved(parse_ddl("id BIGINT NOT NULL"))
    (batch,) = encoded(rows_from(later, [{"id": 1}]), later)
    check(bytearray(batch.data), later)


def test_every_length_of_a_directory_is_bounded():
    section = bytes(good_batch()[HEADER_BYTES:])
    size = read_directory(section).size
    for end in range(size):
        with pytest.raises(CorruptRecordError):
            read_directory(section[:end])
    assert read_directory(section[:size], section_bytes=len(section)).size == size
    for wrong in (len(section) - 1, len(section) + 1):
        with pytest.raises(CorruptRecordError, match="bytes behind it"):
            read_directory(section[:size], section_bytes=wrong)


def test_control_batches_and_batches_without_rows_are_not_typed():
    header = read_header(good_batch())
    assert is_typed(header)
    assert not is_typed(header._replace(attributes=TYPED_BIT | 0x20))
    assert not is_typed(read_header(empty_batch(base_offset=0, next_offset=5, leader_epoch=0)))


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


def test_bounds_of_a_producer_that_make_no_sense_are_not_used():
    batch = changed(good_batch(), entries=lambda e: [e[0]._replace(minimum=b"123"), e[1]])
    check(batch)
    entry = read_directory(batch[HEADER_BYTES:]).column(1)
    assert statistics_of(entry, SCHEMA.latest.by_id[1].type, 2) is None
