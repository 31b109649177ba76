"""Fetch beyond what kio says of it: null records, followers, columns that are wanted."""

import struct

import pytest
from kafka.protocol.consumer import FetchResponse as ForeignFetchResponse

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.ports import SlicedRecords
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.protocol.apis import fetch
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest
from storage_engine.protocol.apis.spec import LongMessageError
from storage_engine.protocol.apis.wire import uvarint
from storage_engine.protocol.typed.projection import (
    WANT_FRAMES,
    WANT_STORED,
    WANT_TAG,
    TypedWant,
    encode_want,
)
from storage_engine.tests.protocol.apis.buffers import joined


@pytest.mark.parametrize("version", range(4, 13))
def test_null_records_are_read_as_none_and_none_is_written_as_no_bytes(version: int) -> None:
    response = fetch.FetchResponse([fetch.FetchPartitionResponse("a", 0, 6)])
    data = joined(fetch.encode_response(version, response))
    theirs = ForeignFetchResponse.decode(data, version=version)
    assert theirs.responses[0].partitions[0].records == b""
    null = data[:-4] + b"\x00\x00\x00\x00" if version >= 12 else data[:-4] + b"\xff\xff\xff\xff"
    (partition,) = fetch.API.decode_response(version, memoryview(null)).partitions
    assert partition.records is None


def test_the_incarnation_of_a_follower_travels_where_kafka_15_has_it() -> None:
    request = fetch.FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=9, partitions=[], replica_id=3, replica_epoch=77
    )
    data = joined(fetch.encode_request(12, request))
    assert data.endswith(b"\x01\x01\x0d" + struct.pack(">iqb", 3, 77, 0))
    assert fetch.API.decode_request(12, memoryview(data)) == request._replace(forgotten=[])


def test_the_order_of_fetched_partitions_is_kept_even_when_topics_alternate() -> None:
    partitions = [fetch.FetchPartition(topic, index, 0, 9) for index in (0, 1) for topic in "ab"]
    request = fetch.FetchRequest(1, 1, 1, partitions)
    data = joined(fetch.encode_request(11, request))
    assert fetch.API.decode_request(11, memoryview(data)).partitions == partitions


WANTS = [
    None,
    TypedWant(WANT_STORED),
    TypedWant(WANT_FRAMES, (1, 300)),
    TypedWant(WANT_FRAMES, tuple(range(1, 200)), (Comparison(1, Operator.GE, (7,)),)),
]


def encoded(version: int, wants: list[TypedWant | None]) -> memoryview:
    topic = "t" if version < 13 else "AAAAAAAAAAAAAAAAAAAAAQ"
    partitions = [
        FetchPartition(topic, number, 0, 100, want=want) for number, want in enumerate(wants)
    ]
    buffers = fetch.encode_request(version, FetchRequest(0, 1, 100, partitions))
    return memoryview(b"".join(map(bytes, buffers)))


@pytest.mark.parametrize("version", range(12, 18))
def test_what_is_wanted_comes_back_and_equal_wants_are_one_object(version):
    asked = [want for want in WANTS for _ in range(2)]
    decoded = fetch.API.decode_request(version, encoded(version, asked)).partitions
    assert [each.want for each in decoded] == asked
    assert decoded[4].want is decoded[5].want


def test_versions_without_tagged_fields_send_none():
    decoded = fetch.API.decode_request(11, encoded(11, WANTS)).partitions
    assert [each.want for each in decoded] == [None] * len(WANTS)


HOSTILE = {
    "nothing": b"",
    "mode": b"\x02",
    "rest": b"\x00\x00",
    "count": b"\x01",
    "cut off": b"\x01\x02" + bytes(7),
    "too many columns": b"\x01" + uvarint(3000) + bytes(12_000),
    "endless count": b"\x01\xff\xff\xff\xff\x0f",
    "twice": b"\x01\x02" + struct.pack(">ii", 5, 5),
    "filter": b"\x01\x00\x63",
    "two values for one": b"\x01\x00\x01\x00\x01" + struct.pack(">iBH", 1, 1, 2) + b"\x00\x01" * 2,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_malformed_wish_makes_the_request_malformed(what):
    good = encode_want(TypedWant(WANT_FRAMES, (1,)))
    frame = bytes(encoded(12, [TypedWant(WANT_FRAMES, (1,))]))
    field = uvarint(WANT_TAG) + uvarint(len(good)) + good
    assert frame.count(field) == 1
    hostile = HOSTILE[what]
    changed = frame.replace(field, uvarint(WANT_TAG) + uvarint(len(hostile)) + hostile)
    with pytest.raises(InvalidRequestError):
        fetch.API.decode_request(12, memoryview(changed))


def test_long_wishes_count_as_items_of_the_request():
    frame = encoded(12, [TypedWant(WANT_FRAMES, tuple(range(1, 1_900 + n))) for n in range(5)])
    with pytest.raises(LongMessageError):
        fetch.API.decode_request(12, frame, 500)
    assert len(fetch.API.decode_request(12, frame, 5_000).partitions) == 5


def test_tagged_fields_of_a_followers_state_count_as_items_of_the_request():
    request = fetch.FetchRequest(500, 1, 1 << 20, [], 2, replica_epoch=7)
    frame = b"".join(fetch.encode_request(12, request))
    state = frame[-13:-1]
    tags = b"".join(uvarint(tag) + b"\x00" for tag in range(600))
    hostile = state + uvarint(600) + tags
    field = uvarint(fetch.REPLICA_STATE_TAG) + uvarint(len(hostile)) + hostile
    changed = memoryview(frame[:-15] + field)
    with pytest.raises(LongMessageError):
        fetch.API.decode_request(12, changed, 500)
    assert fetch.API.decode_request(12, changed).replica_epoch == 7


def test_records_in_several_pieces_are_sent_as_one():
    records = SlicedRecords([b"one", memoryview(b"two"), bytearray(b"three")])
    answers = [
        fetch.FetchPartitionResponse("t", 0, records=each) for each in (records, b"onetwothree")
    ]
    one, other = (
        b"".join(map(bytes, fetch.encode_response(12, fetch.FetchResponse([answer]))))
        for answer in answers
    )
    assert one == other
