"""Headers of records: how they are written, read, and refused."""

import time

import pyarrow as pa
import pytest

from storage_engine.core.errors import InvalidRecordError
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.tests.protocol.naive_codec import NaiveRecord, encode_record, varint, wrap
from storage_engine.tests.protocol.records.damaged_records import (
    assert_damage,
    body_of,
    record,
    rejected,
)
from storage_engine.tests.protocol.records.made_records import one_batch


def test_headers_keep_order_repetition_nulls_and_empties():
    headers = pa.array(
        [
            [("a", b"1"), ("a", b"2"), ("", b""), ("z", None), ("ü", b"\xff\x00")],
            [],
            None,
            [("b", b"x" * 300)],
        ],
        HEADERS_TYPE,
    )
    decoded = decode_batches(
        one_batch(pa.array([b"v"] * 4), headers=headers).data, include_headers=True
    )
    assert decoded.headers.to_pylist() == [
        headers[0].as_py(),
        None,
        None,
        [{"key": "b", "value": b"x" * 300}],
    ]


def test_headers_are_left_out_unless_asked_for():
    headers = pa.array([[("a", b"1")]], HEADERS_TYPE)
    assert decode_batches(one_batch(pa.array([b"v"]), headers=headers).data).headers is None


def test_headers_of_large_list_and_binary_keys_are_written():
    kind = pa.large_list(pa.struct([("key", pa.large_binary()), ("value", pa.string())]))
    batch = one_batch(pa.array([b"v"]), headers=pa.array([[(b"k", "w")]], kind))
    decoded = decode_batches(batch.data, include_headers=True)
    assert decoded.headers.to_pylist() == [[{"key": "k", "value": b"w"}]]


def test_many_headers_on_few_records_are_read_like_few_on_many():
    rich = [(f"k{i}", b"v%d" % i) for i in range(500)]
    headers = pa.array([rich, None, rich[:3]] + [[("x", None)]] * 40, HEADERS_TYPE)
    batch = one_batch(pa.array([b"v"] * len(headers)), headers=headers)
    decoded = decode_batches(batch.data, include_headers=True)
    assert decoded.headers.to_pylist() == headers.to_pylist()


def test_header_with_a_null_key_is_refused():
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS_TYPE)
    with pytest.raises(InvalidRecordError, match="null key"):
        encode_batches(pa.array([b"v"]), headers=headers)


def test_header_key_that_is_not_utf8_is_read_with_replacement_characters():
    body = b"\x00\x00\x00\x01\x01\x02" + b"\x04\xffk" + b"\x01"
    blob = wrap(bytes([2 * len(body)]) + body, count=1)
    decoded = decode_batches(blob, include_headers=True)
    assert decoded.headers.to_pylist() == [[{"key": "\ufffdk", "value": None}]]


def test_damaged_headers_are_named_among_many_records_too():
    good = [encode_record(NaiveRecord(i, 0, None, b"v", [("k", b"w")]), 0, 0) for i in range(40)]
    bad = record(body_of(offset=varint(40), headers=varint(1) + b"\x02k" + varint(50)))
    text = rejected(wrap(b"".join([*good, bad]), count=41))
    assert "record 40: a header's key or value has the impossible length 50" in text


def test_bytes_behind_the_last_header_are_found_among_many_records_too():
    records = [
        record(body_of(offset=varint(i), headers=varint(1) + b"\x02k\x01" + b"?" * (i == 7)))
        for i in range(40)
    ]
    text = rejected(wrap(b"".join(records), count=40))
    assert "record 7: bytes are left after its last header" in text


def test_many_headers_of_one_record_take_linear_time():
    headers = varint(200_000) + b"\x02k\x01" * 200_000
    started = time.monotonic()
    decoded = decode_batches(wrap(record(body_of(headers=headers)), count=1), include_headers=True)
    assert len(decoded.headers[0]) == 200_000
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (record(body_of(headers=varint(1) + varint(-1) + b"\x01")), "impossible length -1"),
        (record(body_of(headers=varint(1) + varint(9) + b"k")), "impossible length 9"),
        (record(body_of(headers=varint(1) + b"\x02k" + varint(-2))), "impossible length -2"),
        (record(body_of(headers=varint(1) + b"\x02k" + b"\x80")), "is cut off or too long"),
        (record(body_of(headers=varint(1) + b"\x02k\x01rest")), "bytes are left after its last"),
    ],
)
def test_each_damage_of_a_header_is_named(records, reason):
    assert_damage(records, reason)
