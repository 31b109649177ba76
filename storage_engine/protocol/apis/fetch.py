"""Fetch: record batches from a leader (or a replica) to a consumer or a follower.

Versions: 4 isolation level, magic 2. 5 log start offset. 7 fetch sessions (KIP-227). 9 leader epoch
of the client (KIP-320). 10 zstd. 11 rack (KIP-392). 12 flexible, last fetched epoch and the
diverging epoch (KIP-595). 13 topics by their ids, which then stand as text where the name was
(KIP-516). 14 an error of tiered storage, which is never sent. 15 the follower and its incarnation
in tagged field 1 (KIP-903). 16 where current leaders are (KIP-951). 17 a follower's log dir,
which is ignored (KIP-853). 18 the high watermark that a follower knows, which is ignored
(KIP-1166). Between our brokers version 12 carries the follower's incarnation
(R-CTL4) in that field 1, and per partition a tagged field of our own, empty, by which a follower
reports bad bytes. From version 12 on a client may say in another, WANT_TAG, how it wants the
batches of a typed topic.

Records are never copied. Decoded ones are slices of the frame; to encode, anything with a length
goes through as it is, with the bytes between in pieces of their own. Source: Kafka's
FetchRequest.json and FetchResponse.json.
"""

import dataclasses
import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from storage_engine.core.ports import LogSlice, SlicedRecords
from storage_engine.protocol.apis.current_leaders import (
    CurrentLeader,
    LeaderNode,
    decode_leader,
    decode_nodes,
    encode_leader,
    encode_nodes,
)
from storage_engine.protocol.apis.spec import Buffer
from storage_engine.protocol.apis.topic_ids import id_bytes, id_text
from storage_engine.protocol.apis.wire import (
    INT32,
    Reader,
    Writer,
    coded,
    count,
    group_runs,
    string,
    uvarint,
)
from storage_engine.protocol.typed.projection import WANT_TAG, TypedWant, decode_want, encode_want

FIRST_FLEXIBLE = 12
FIRST_WITH_LEADERS = 12
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITHOUT_REPLICA_ID = 15
FIRST_WITH_NODES = 16
CONSUMER_REPLICA_ID = -1
ANY_REPLICA_ID = -2
"""The replica id of a consumer that any replica answers, not only the leader (Kafka's debugging
consumer)."""
READ_UNCOMMITTED = 0
READ_COMMITTED = 1

REPLICA_STATE_TAG = 1
"""The tagged field with a follower's id and incarnation."""

_WAS_DAMAGED_TAG = 10_000
"""The tag of a partition's field, far from the numbers that Kafka will ever use."""
WANT_ITEM_BYTES = 16
"""The bytes of a partition's TypedWant that count as one item of the request."""
_DIVERGING_EPOCH_TAG = 0
_CURRENT_LEADER_TAG = 1


class FetchPartition(NamedTuple):
    """The offset from which to read one partition."""

    topic: str
    """The name; from FIRST_WITH_TOPIC_IDS on the wire has the id as text."""
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    """The leader epoch that the client knows; -1 when it does not care."""
    last_fetched_epoch: int = -1
    """The leader epoch of the last record before `fetch_offset` in the follower's log."""
    log_start_offset: int = -1
    """The follower's log start; -1 from consumers."""
    was_damaged: bool = False
    """True when the follower has been sent bad bytes from `fetch_offset` on."""
    topic_id: UUID | None = None
    """The id by which the request named the topic, not on the wire. A topic that was created again
    since has another one."""
    want: TypedWant | None = None
    """The form in which the client takes the batches of a typed topic; None: records of JSON."""


class FetchRequest(NamedTuple):
    """The partitions are in the order in which they are to be served."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: Sequence[FetchPartition]
    replica_id: int = CONSUMER_REPLICA_ID
    isolation_level: int = READ_UNCOMMITTED
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[tuple[str, Sequence[int]]] = ()
    rack_id: str = ""
    replica_epoch: int = -1
    """The follower's incarnation, -1 where it has none; version 12 between our brokers carries it.
    A broker in controlled shutdown sends -2 less its number."""

    def of(self, partitions: Sequence[FetchPartition]) -> "FetchRequest":
        """Return the request with other partitions, and none forgotten, in half of the time that
        `_replace` takes."""
        return FetchRequest._make((*self[:3], partitions, *self[4:8], (), *self[9:]))


class FetchPartitionResponse(NamedTuple):
    """The answer for one partition."""

    topic: str
    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions; None unless read_committed."""
    preferred_read_replica: int = -1
    records: memoryview | bytes | bytearray | LogSlice | SlicedRecords | None = None
    """None is sent as no bytes, as Kafka's broker does. A decoded response has None or a slice of
    the frame."""
    diverging_epoch: tuple[int, int] | None = None
    """The (epoch, end offset) where the follower's log diverges from the leader's."""
    current_leader: CurrentLeader | None = None
    """The partition's current leader, with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""


class FetchResponse(NamedTuple):
    """Answer to a FetchRequest."""

    partitions: Sequence[FetchPartitionResponse]
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    nodes: Sequence[LeaderNode] = ()
    """The brokers that partitions name in `current_leader`."""


# replica id, max wait, min bytes, max bytes, isolation level, [session id, session epoch]
_HEAD_V4 = struct.Struct(">iiiib")
_HEAD_V7 = struct.Struct(">iiiibii")
_HEAD_V15 = struct.Struct(">iiibii")

# replica id, replica epoch
_REPLICA_STATE = struct.Struct(">iq")
_REPLICA_STATE_HEAD = bytes([1, REPLICA_STATE_TAG, _REPLICA_STATE.size + 1])
"""Count, tag and size of the only tagged field, whose value ends with no tagged fields."""

# partition, [leader epoch], offset, [last fetched epoch], [log start], max bytes
_REQUEST_V4 = struct.Struct(">iqi")
_REQUEST_V5 = struct.Struct(">iqqi")
_REQUEST_V9 = struct.Struct(">iiqqi")
_REQUEST_V12 = struct.Struct(">iiqiqi")


def _read_request(reader: Reader, version: int) -> FetchRequest:
    if version >= FIRST_WITHOUT_REPLICA_ID:
        head = _HEAD_V15.unpack_from(reader.data)
        reader.position = _HEAD_V15.size
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, epoch = head
        replica_id = CONSUMER_REPLICA_ID
    elif version >= 7:
        head = _HEAD_V7.unpack_from(reader.data)
        reader.position = _HEAD_V7.size
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, epoch = head
    else:
        head = _HEAD_V4.unpack_from(reader.data)
        reader.position = _HEAD_V4.size
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = head
        session_id, epoch = 0, -1
    partitions: list[FetchPartition] = []
    for _ in range(reader.count(3 if reader.flexible else 6)):
        _read_topic(reader, version, partitions)
    forgotten = []
    if version >= 7:
        for _ in range(reader.count(3 if reader.flexible else 6)):
            forgotten.append((_read_topic_key(reader, version), reader.int32s()))
            reader.tags()
    rack_id = reader.name() if version >= 11 else ""
    replica_epoch = -1
    tags = reader.tags()
    if tags and (state := tags.get(REPLICA_STATE_TAG)) is not None:
        state_id, replica_epoch = _replica_state(reader, state)
        if version >= FIRST_WITHOUT_REPLICA_ID:
            replica_id = state_id
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        partitions,
        replica_id,
        isolation_level,
        session_id,
        epoch,
        forgotten,
        rack_id,
        replica_epoch,
    )


def _read_topic_key(reader: Reader, version: int) -> str:
    if version < FIRST_WITH_TOPIC_IDS:
        return reader.name()
    return id_text(reader.uuid_bytes())


def _topic_key(topic: str, version: int) -> bytes:
    if version < FIRST_WITH_TOPIC_IDS:
        return string(topic, version >= FIRST_FLEXIBLE)
    return id_bytes(topic)


def _read_topic(reader: Reader, version: int, partitions: list[FetchPartition]) -> None:
    topic = _read_topic_key(reader, version)
    data = reader.data
    if version >= 12:
        # Partitions mostly want the same, which is decoded and kept once.
        want: TypedWant | None = None
        encoded_want: memoryview | None = None
        for _ in range(reader.count(_REQUEST_V12.size + 1)):
            index, epoch, offset, last_epoch, start, size = _REQUEST_V12.unpack_from(
                data, reader.position
            )
            reader.position += _REQUEST_V12.size
            tags = reader.tags()
            was_damaged = _WAS_DAMAGED_TAG in tags
            if tags.get(WANT_TAG) != encoded_want:
                encoded_want = tags.get(WANT_TAG)
                reader.spend(len(encoded_want or b"") // WANT_ITEM_BYTES)
                want = None if encoded_want is None else decode_want(encoded_want)
            partitions.append(
                FetchPartition(
                    topic, index, offset, size, epoch, last_epoch, start, was_damaged, None, want
                )
            )
        reader.tags()
        return
    layout = _REQUEST_V9 if version >= 9 else _REQUEST_V5 if version >= 5 else _REQUEST_V4
    for _ in range(reader.count(layout.size)):
        fields = layout.unpack_from(data, reader.position)
        reader.position += layout.size
        epoch = start = -1
        if version >= 9:
            index, epoch, offset, start, size = fields
        elif version >= 5:
            index, offset, start, size = fields
        else:
            index, offset, size = fields
        partitions.append(FetchPartition(topic, index, offset, size, epoch, -1, start))


def _replica_state(reader: Reader, state: memoryview) -> tuple[int, int]:
    """Return a follower's id and its incarnation. `reader`: of the request, whose items these
    are."""
    replica_id, replica_epoch = _REPLICA_STATE.unpack_from(state)
    rest = reader.within(state, _REPLICA_STATE.size)
    rest.tags()
    rest.finish()
    reader.items_left = rest.items_left
    return replica_id, replica_epoch


def encode_request(version: int, request: FetchRequest) -> list[Buffer]:
    flexible = version >= FIRST_FLEXIBLE
    tags = b"\x00" if flexible else b""
    limits = request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level
    session = request.session_id, request.session_epoch
    if version >= FIRST_WITHOUT_REPLICA_ID:
        pieces = [_HEAD_V15.pack(*limits, *session)]
    elif version >= 7:
        pieces = [_HEAD_V7.pack(request.replica_id, *limits, *session)]
    else:
        pieces = [_HEAD_V4.pack(request.replica_id, *limits)]
    groups = group_runs(request.partitions)
    pieces.append(count(len(groups), flexible))
    for topic, partitions in groups:
        pieces += _topic_key(topic, version), count(len(partitions), flexible)
        pieces += [_request_partition(version, partition) for partition in partitions]
        pieces.append(tags)
    if version >= 7:
        pieces.append(count(len(request.forgotten), flexible))
        for topic, indexes in request.forgotten:
            pieces += _topic_key(topic, version), count(len(indexes), flexible)
            pieces += struct.pack(f">{len(indexes)}i", *indexes), tags
    if version >= 11:
        pieces.append(string(request.rack_id, flexible))
    replica = request.replica_id, request.replica_epoch
    if version >= FIRST_WITHOUT_REPLICA_ID:
        tells_replica = replica != (CONSUMER_REPLICA_ID, -1)
    else:
        tells_replica = request.replica_epoch != -1
    if tells_replica and flexible:
        pieces += _REPLICA_STATE_HEAD, _REPLICA_STATE.pack(*replica), b"\x00"
    else:
        pieces.append(tags)
    return [b"".join(pieces)]


def _request_partition(version: int, partition: FetchPartition) -> bytes:
    _, index, offset, size, epoch, last_epoch, start, was_damaged, _, want = partition
    if version >= 12:
        fields = _REQUEST_V12.pack(index, epoch, offset, last_epoch, start, size)
        if want is None and not was_damaged:
            return fields + b"\x00"
        tags = [(_WAS_DAMAGED_TAG, b"")] if was_damaged else []
        if want is not None:
            tags.append((WANT_TAG, encode_want(want)))
        writer = Writer(flexible=True)
        writer.tags(tags)
        return fields + bytes(writer.data)
    if version >= 9:
        return _REQUEST_V9.pack(index, epoch, offset, start, size)
    if version >= 5:
        return _REQUEST_V5.pack(index, offset, start, size)
    return _REQUEST_V4.pack(index, offset, size)


# throttle time, [error, session id]
_RESPONSE_HEAD_V7 = struct.Struct(">ihi")

# partition, error, high watermark, last stable offset, [log start offset]
_RESPONSE_V4 = struct.Struct(">ihqq")
_RESPONSE_V5 = struct.Struct(">ihqqq")
_TRANSACTION = struct.Struct(">qq")
_EPOCH_AND_END = struct.Struct(">iqb")


def encode_response(version: int, response: FetchResponse) -> list[Buffer]:
    flexible = version >= FIRST_FLEXIBLE
    if version >= 7:
        pending = [
            _RESPONSE_HEAD_V7.pack(
                response.throttle_time_ms, response.error_code, response.session_id
            )
        ]
    else:
        pending = [INT32.pack(response.throttle_time_ms)]
    groups = group_runs(response.partitions)
    pending.append(count(len(groups), flexible))
    buffers: list[Buffer] = []
    for topic, partitions in groups:
        pending.append(_topic_key(topic, version))
        pending.append(count(len(partitions), flexible))
        for partition in partitions:
            records = partition.records
            size = 0 if records is None else len(records)
            pending.append(_response_partition(version, partition))
            pending.append(uvarint(size + 1) if flexible else INT32.pack(size))
            if records is not None and size:
                buffers.append(b"".join(pending))
                if isinstance(records, SlicedRecords):
                    buffers.extend(records.pieces)
                else:
                    buffers.append(records)
                pending = []
            if flexible:
                pending.append(_response_tags(partition))
        if flexible:
            pending.append(b"\x00")
    if flexible:
        nodes = response.nodes if version >= FIRST_WITH_NODES else ()
        pending.append(encode_nodes(nodes) if nodes else b"\x00")
    if rest := b"".join(pending):
        buffers.append(rest)
    return buffers


def _response_partition(version: int, partition: FetchPartitionResponse) -> bytes:
    """Encode a partition up to, and without, the size of its records."""
    _, index, error, watermark, stable, start, aborted, preferred, _, _, _ = partition
    flexible = version >= FIRST_FLEXIBLE
    if version >= 5:
        encoded = _RESPONSE_V5.pack(index, error, watermark, stable, start)
    else:
        encoded = _RESPONSE_V4.pack(index, error, watermark, stable)
    if aborted is None:
        encoded += b"\x00" if flexible else b"\xff\xff\xff\xff"
    else:
        end = b"\x00" if flexible else b""
        encoded += count(len(aborted), flexible)
        encoded += b"".join([_TRANSACTION.pack(*transaction) + end for transaction in aborted])
    return encoded + INT32.pack(preferred) if version >= 11 else encoded


def _response_tags(partition: FetchPartitionResponse) -> bytes:
    diverging, leader = partition.diverging_epoch, partition.current_leader
    if diverging is None and leader is None:
        return b"\x00"
    writer = Writer(flexible=True)
    tags = []
    if diverging is not None:
        tags.append((_DIVERGING_EPOCH_TAG, _EPOCH_AND_END.pack(*diverging, 0)))
    if leader is not None:
        tags.append((_CURRENT_LEADER_TAG, encode_leader(leader)))
    writer.tags(tags)
    return bytes(writer.data)


def _read_response(reader: Reader, version: int) -> FetchResponse:
    error_code = session_id = 0
    if version >= 7:
        throttle_time_ms, error_code, session_id = _RESPONSE_HEAD_V7.unpack_from(reader.data)
        reader.position = _RESPONSE_HEAD_V7.size
    else:
        throttle_time_ms = reader.int32()
    partitions: list[FetchPartitionResponse] = []
    for _ in range(reader.count(3 if reader.flexible else 6)):
        topic = _read_topic_key(reader, version)
        partition_count = reader.count(23 if reader.flexible else 26)
        partitions += [_read_partition(reader, version, topic) for _ in range(partition_count)]
        reader.tags()
    tags = reader.tags()
    nodes = decode_nodes(tags) if version >= FIRST_WITH_NODES else ()
    return FetchResponse(partitions, error_code, session_id, throttle_time_ms, nodes)


def _read_partition(reader: Reader, version: int, topic: str) -> FetchPartitionResponse:
    start = -1
    if version >= 5:
        fields = _RESPONSE_V5.unpack_from(reader.data, reader.position)
        reader.position += _RESPONSE_V5.size
        index, error, watermark, stable, start = fields
    else:
        fields = _RESPONSE_V4.unpack_from(reader.data, reader.position)
        reader.position += _RESPONSE_V4.size
        index, error, watermark, stable = fields
    aborted = None
    if (transactions := reader.count(16, -1)) >= 0:
        aborted = [_read_transaction(reader) for _ in range(transactions)]
    preferred = reader.int32() if version >= 11 else -1
    records = reader.records()
    diverging = leader = None
    if tags := reader.tags():
        if (tag := tags.get(_DIVERGING_EPOCH_TAG)) is not None:
            diverging = _EPOCH_AND_END.unpack_from(tag)[:2]
        if (tag := tags.get(_CURRENT_LEADER_TAG)) is not None:
            leader = decode_leader(tag)
    return FetchPartitionResponse(
        topic,
        index,
        error,
        watermark,
        stable,
        start,
        aborted,
        preferred,
        records,
        diverging,
        leader,
    )


def _read_transaction(reader: Reader) -> tuple[int, int]:
    transaction = reader.int64(), reader.int64()
    reader.tags()
    return transaction


API = coded(1, _read_request, encode_request, _read_response, encode_response)

BY_NAME = dataclasses.replace(API, max_version=FIRST_WITH_TOPIC_IDS - 1)
"""The spec for clients that name topics, and mean whichever topic has the name now."""

BY_ID = dataclasses.replace(API, min_version=FIRST_WITH_TOPIC_IDS)
"""The spec for clients that mean one topic, and whose every fetch says the epoch before it."""
