"""A leader's checks of a typed batch."""

import subprocess
import sys
from uuid import UUID

import pyarrow as pa
import pytest

from storage_engine.core.errors import (
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    RecordTooLargeError,
)
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
    encode_directory,
    read_directory,
    statistics_of,
)
from storage_engine.protocol.typed.typed_batch import check_typed_batch, is_typed
from storage_engine.tests.protocol.typed.logs import TOPIC_ID, encoded, rows_from, schema_of

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
    check(with_tombstone())


def with_tombstone():
    return good_batch(tombstones=pa.array([False, True]))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            changed(good_batch(), entries=lambda e: [e[0]._replace(column_id=9), e[1]]),
            "column of id 9, which version 1",
        ),
        (
            changed(good_batch(), entries=lambda e: [*e, e[0]._replace(column_id=OFFSETS)]),
            "column of offsets",
        ),
        (
            changed(good_batch(), entries=lambda e: [e[1]]),
            "2 nulls in the column 'id', which is NOT NULL",
        ),
        (
            changed(good_batch(), entries=lambda e: [e[0]._replace(null_count=1), e[1]]),
            "1 nulls in the column 'id'",
        ),
        (
            changed(with_tombstone(), entries=lambda e: [c for c in e if c.column_id != 1]),
            "2 nulls in the column 'id'",
        ),
        (
            changed(
                with_tombstone(),
                entries=lambda e: [c._replace(null_count=c.column_id == TOMBSTONES) for c in e],
            ),
            "nulls among its timestamps or tombstones",
        ),
        (changed(good_batch(), rows=3), "2 rows of codec 0, its directory 3"),
        (
            changed(good_batch(), entries=lambda e: [e[0]._replace(codec=1), e[1]]),
            "impossible numbers",
        ),
        (
            changed(good_batch(), entries=lambda e: [e[0], e[0]]),
            "its 2 columns, 1 of them different",
        ),
    ],
)
def test_what_a_producer_may_not_send_is_refused(batch, message):
    with pytest.raises(InvalidRecordError, match=message):
        check(batch)


def test_a_later_version_and_columns_that_are_too_large_are_errors_of_their_own():
    with pytest.raises(UnknownSchemaVersionError, match="version 2 of the topic's schema"):
        check(changed(good_batch(), schema_version=2))
    large = {"codec": 4, "raw_bytes": 65 << 20}
    with pytest.raises(RecordTooLargeError, match="68157"):
        check(changed(good_batch(), entries=lambda e: [e[0]._replace(**large), e[1]]))


def test_tombstones_need_a_key():
    batch = with_tombstone()
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


def test_control_batches_and_batches_without_rows_are_not_typed():
    header = read_header(good_batch())
    assert is_typed(header)
    assert not is_typed(header._replace(attributes=TYPED_BIT | 0x20))
    assert not is_typed(read_header(empty_batch(base_offset=0, next_offset=5, leader_epoch=0)))


def test_bounds_of_a_producer_that_make_no_sense_are_not_used():
    batch = changed(good_batch(), entries=lambda e: [e[0]._replace(minimum=b"123"), e[1]])
    check(batch)
    entry = read_directory(batch[HEADER_BYTES:]).column(1)
    assert statistics_of(entry, SCHEMA.latest.by_id[1].type, 2) is None


def test_the_brokers_half_needs_neither_numpy_nor_pyarrow():
    modules = ("directory", "typed_batch", "frames", "projection", "filter_bytes", "crc_join")
    names = ", ".join(f"storage_engine.protocol.typed.{name}" for name in modules)
    code = f"import sys, {names}; print([n for n in ('numpy', 'pyarrow') if n in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
