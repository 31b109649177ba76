"""Bounds of messages: what a peer claims costs neither memory nor time."""

import struct
import time
import tracemalloc

import pytest

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis.registry import spec_for
from storage_engine.protocol.apis.spec import MAX_ITEMS, LongMessageError
from storage_engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from storage_engine.tests.protocol.apis.decoding import SOON_S, decode, refuses


def test_counts_and_lengths_that_claim_too_much_allocate_nothing() -> None:
    huge = struct.pack(">i", 2**31 - 1)
    bodies = [
        (3, 1, huge),
        (3, 9, b"\xff\xff\xff\xff\x0f"),
        (0, 7, struct.pack(">hhi", -1, 1, 1) + huge),
        (1, 11, struct.pack(">iiiibii", -1, 1, 1, 1, 0, 0, 0) + huge),
        (19, 2, huge),
        (19, 5, b"\xff\xff\xff\xff\x07"),
    ]
    tracemalloc.start()
    try:
        for key, version, body in bodies:
            assert refuses(key, version, "request", body + bytes(1000))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_varints_of_more_than_five_bytes_or_32_bits_are_refused() -> None:
    assert refuses(3, 9, "request", b"\x80" * 6 + b"\x00" * 10)
    assert refuses(3, 9, "request", b"\x80\x80\x80\x80\x10" + bytes(10))


def test_a_message_of_very_many_small_items_is_refused_soon_and_with_little_memory() -> None:
    items = 4_000_000
    body = struct.pack(">i", items) + bytes(2 * items)  # Metadata for topics of no name
    started = time.monotonic()
    assert refuses(3, 1, "request", body)
    nested = struct.pack(">i", 1) + struct.pack(">h", 0) + struct.pack(">ihi", 1, 1, items)
    assert refuses(19, 2, "request", nested + bytes(8 * items))
    assert time.monotonic() - started < SOON_S


def test_items_are_limited_over_all_arrays_of_a_message() -> None:
    inner = MAX_ITEMS // 3
    assignment = struct.pack(">ii", 0, inner) + bytes(4 * inner)
    body = (
        struct.pack(">i", 1)
        + struct.pack(">h", 0)
        + struct.pack(">ih", 1, 1)
        + struct.pack(">i", 4)
        + assignment * 4
        + struct.pack(">i", 0)
        + struct.pack(">ib", 1000, 0)
    )
    with pytest.raises(InvalidRequestError, match="more than 250000 items"):
        decode(19, 2, "request", body)


def test_many_tagged_fields_take_linear_time() -> None:
    fields = 100_000
    body = b"\x01\x00\x00"  # no topics, two booleans
    count = bytes([fields & 0x7F | 0x80, fields >> 7 & 0x7F | 0x80, fields >> 14])
    started = time.monotonic()
    assert not refuses(3, 11, "request", body + count + b"\x63\x00" * fields)
    assert time.monotonic() - started < SOON_S


def test_the_error_names_the_message_and_what_is_wrong() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        decode(3, 12, "request", b"\x05")
    assert str(raised.value) == (
        "malformed Metadata request of version 12: an array says it has 4 items, 0 bytes are left;"
        " the connection is closed"
    )


def test_names_that_are_not_utf_8_are_refused() -> None:
    assert refuses(3, 1, "request", struct.pack(">ih", 1, 2) + b"\xff\xfe")
    head = struct.pack(">hhiih", -1, 1, 1000, 1, 2) + b"\xff\xfe"
    assert refuses(0, 7, "request", head + struct.pack(">iii", 1, 0, 0))


def test_null_arrays_give_no_item_back():
    topic, api = AlterPartitionReassignmentsRequest.ReassignableTopic, spec_for(45)
    partitions = [
        topic.ReassignablePartition(partition_index=number, replicas=None) for number in range(300)
    ]
    topics = [topic(name=name, partitions=partitions) for name in ("t", "u")]
    request = AlterPartitionReassignmentsRequest(topics=topics)
    frame = memoryview(b"".join(api.encode_request(0, request)))
    with pytest.raises(LongMessageError):
        api.decode_request(0, frame, 500)
    assert len(api.decode_request(0, frame, 700).topics) == 2
