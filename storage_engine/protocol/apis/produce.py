"""Produce: record batches from a producer to the leader of each partition.

Versions 0-2 are decoded only so that the broker can refuse them (their records are of magic 0 or
1), and are advertised because librdkafka compresses nothing otherwise (KAFKA-18659). 3:
transactional id, magic 2. 5: log start offset. 7: zstd. 8: error message (KIP-467). 9: flexible.
10: where current leaders are (KIP-951). 11: the error
TRANSACTION_ABORTABLE. 12: the leader enlists the partition in the transaction (KIP-890).

A request with one partition, which is what a producer under load sends, takes a path of two
unpacks; records are slices of the frame. Source: Kafka's ProduceRequest.json and
ProduceResponse.json; KIP-98, KIP-467, KIP-482, KIP-890.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from storage_engine.core.ports import LogSlice
from storage_engine.protocol.apis.current_leaders import (
    CurrentLeader,
    LeaderNode,
    decode_leader,
    decode_nodes,
    encode_leader,
    encode_nodes,
)
from storage_engine.protocol.apis.spec import Buffer
from storage_engine.protocol.apis.wire import (
    INT32,
    Reader,
    Writer,
    coded,
    count,
    group_by_topic,
    nullable_string,
    string,
    uvarint,
)

FIRST_WITH_V2_BATCHES = 3
FIRST_FLEXIBLE = 9
FIRST_WITH_LEADERS = 10
FIRST_WITH_ABORTABLE = 11
FIRST_THAT_ENLISTS = 12

_CURRENT_LEADER_TAG = 0


class ProducePartition(NamedTuple):
    """The batches for one partition."""

    topic: str
    partition: int
    records: memoryview | bytes | bytearray | LogSlice | None
    """A decoded request has None or a memoryview of the frame, valid as long as the frame."""


class ProduceRequest(NamedTuple):
    """The partitions are in the order of the frame."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: Sequence[ProducePartition]


class ProducePartitionResponse(NamedTuple):
    """The outcome for one partition; the offsets are -1 where there was an error."""

    topic: str
    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    """-1 unless the topic's timestamps are LogAppendTime."""
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    """The records for which the batch was refused: the index of each in the batch, and why."""
    current_leader: CurrentLeader | None = None
    """The partition's current leader, with NOT_LEADER_OR_FOLLOWER."""


class ProduceResponse(NamedTuple):
    """Answer to a ProduceRequest."""

    partitions: Sequence[ProducePartitionResponse]
    throttle_time_ms: int = 0
    nodes: Sequence[LeaderNode] = ()
    """The brokers that partitions name in `current_leader`."""


_ACKS_TIMEOUT = struct.Struct(">hi")


def _read_request(reader: Reader, version: int) -> ProduceRequest:
    transactional_id = reader.nullable_string() if version >= 3 else None
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(reader.data, reader.position)
    reader.position += _ACKS_TIMEOUT.size
    partitions = []
    for _ in range(reader.count(3 if reader.flexible else 6)):
        topic = reader.name()
        for _ in range(reader.count(6 if reader.flexible else 8)):
            partitions.append(ProducePartition(topic, reader.int32(), reader.records()))
            reader.tags()
        reader.tags()
    reader.tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def encode_request(version: int, request: ProduceRequest) -> list[Buffer]:
    flexible = version >= FIRST_FLEXIBLE
    tags = b"\x00" if flexible else b""
    groups = group_by_topic(request.partitions)
    head = nullable_string(request.transactional_id, flexible) if version >= 3 else b""
    pending = [head, _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)]
    pending.append(count(len(groups), flexible))
    buffers: list[Buffer] = []
    for topic, partitions in groups:
        pending.append(string(topic, flexible))
        pending.append(count(len(partitions), flexible))
        for partition in partitions:
            records = partition.records
            size = -1 if records is None else len(records)
            pending.append(INT32.pack(partition.partition))
            pending.append(uvarint(size + 1) if flexible else INT32.pack(size))
            if records is not None and size:
                buffers.append(b"".join(pending))
                buffers.append(records)
                pending = []
            pending.append(tags)
        pending.append(tags)
    pending.append(tags)
    if rest := b"".join(pending):
        buffers.append(rest)
    return buffers


# index, error, base offset, [log append time], [log start offset]
_PARTITION_V0 = struct.Struct(">ihq")
_PARTITION_V2 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")


def encode_response(version: int, response: ProduceResponse) -> list[Buffer]:
    flexible = version >= FIRST_FLEXIBLE
    tags = b"\x00" if flexible else b""
    groups = group_by_topic(response.partitions)
    pieces = [count(len(groups), flexible)]
    for topic, partitions in groups:
        pieces.append(string(topic, flexible))
        pieces.append(count(len(partitions), flexible))
        for row in partitions:
            _, index, error, base, append_time, log_start, message, bad_records, leader = row
            if version >= 5:
                pieces.append(_PARTITION_V5.pack(index, error, base, append_time, log_start))
            elif version >= 2:
                pieces.append(_PARTITION_V2.pack(index, error, base, append_time))
            else:
                pieces.append(_PARTITION_V0.pack(index, error, base))
            if version >= 8:
                pieces.append(count(len(bad_records), flexible))
                for place, reason in bad_records:
                    pieces.append(INT32.pack(place) + nullable_string(reason, flexible) + tags)
                pieces.append(nullable_string(message, flexible))
            pieces.append(_leader_tags(leader) if version >= FIRST_WITH_LEADERS else tags)
        pieces.append(tags)
    if version >= 1:
        pieces.append(INT32.pack(response.throttle_time_ms))
    pieces.append(encode_nodes(response.nodes) if version >= FIRST_WITH_LEADERS else tags)
    return [b"".join(pieces)]


def _leader_tags(leader: CurrentLeader | None) -> bytes:
    if leader is None:
        return b"\x00"
    writer = Writer(flexible=True)
    writer.tags([(_CURRENT_LEADER_TAG, encode_leader(leader))])
    return bytes(writer.data)


def _read_response(reader: Reader, version: int) -> ProduceResponse:
    partitions = [
        partition
        for _ in range(reader.count(3 if reader.flexible else 6))
        for partition in _read_topic_response(reader, version)
    ]
    throttle_time_ms = reader.int32() if version >= 1 else 0
    tags = reader.tags()
    nodes = decode_nodes(tags) if version >= FIRST_WITH_LEADERS else ()
    return ProduceResponse(partitions, throttle_time_ms, nodes)


def _read_topic_response(reader: Reader, version: int) -> list[ProducePartitionResponse]:
    topic = reader.name()
    partitions = reader.array(14, lambda: _read_partition_response(reader, version, topic))
    reader.tags()
    return partitions


def _read_partition_response(reader: Reader, version: int, topic: str) -> ProducePartitionResponse:
    index, error, base = reader.int32(), reader.int16(), reader.int64()
    append_time = reader.int64() if version >= 2 else -1
    log_start = reader.int64() if version >= 5 else -1
    bad_records = _read_record_errors(reader) if version >= 8 else ()
    message = reader.nullable_string() if version >= 8 else None
    tag = reader.tags().get(_CURRENT_LEADER_TAG)
    leader = decode_leader(tag) if tag is not None and version >= FIRST_WITH_LEADERS else None
    return ProducePartitionResponse(
        topic, index, error, base, append_time, log_start, message, bad_records, leader
    )


def _read_record_errors(reader: Reader) -> Sequence[tuple[int, str | None]]:
    bad_records: list[tuple[int, str | None]] = []
    for _ in range(reader.count(6)):
        bad_records.append((reader.int32(), reader.nullable_string()))
        reader.tags()
    return tuple(bad_records)


API = coded(0, _read_request, encode_request, _read_response, encode_response)
