"""Fetch of a few partitions of one topic, or of none, in the flexible versions, as nearly every
fetch of a follower and of a consumer is; and in version 11, which many clients still speak.

Each function does what its counterpart in `fetch` does at a fraction of the calls, and returns None
for whatever is not exactly that: the general way then decodes, encodes or refuses it.
"""

import struct

from storage_engine.core.ports import SlicedRecords
from storage_engine.protocol.apis.fetch_messages import (
    CONSUMER_REPLICA_ID,
    FIRST_WITH_TOPIC_IDS,
    FIRST_WITHOUT_REPLICA_ID,
    REPLICA_STATE_TAG,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.apis.spec import Buffer
from storage_engine.protocol.apis.topic_ids import id_bytes, id_text
from storage_engine.protocol.apis.wire import (
    INT32,
    NAME_CACHED_MAX_BYTES,
    NAMES_CACHED,
    UINT8,
    cached_name,
    name_from,
    string,
    uvarint,
)

# replica id, max wait, min bytes, max bytes, isolation level, session id, session epoch, topics
_HEAD_V12 = struct.Struct(">iiiibiiB")
# the same without the replica id
_HEAD_V15 = struct.Struct(">iiibiiB")
# partition, leader epoch, offset, last fetched epoch, log start, max bytes, no tags
_WANTED = struct.Struct(">iiqiqiB")
# no forgotten topics, length of the rack
_FORGOTTEN_RACK = struct.Struct(">BB")
# fields, tag, size, replica id, replica epoch, no tags
_REPLICA_STATE = struct.Struct(">BBBiqB")
_STATE_BYTES = 13

# throttle time, error, session id, topics
_RESPONSE_HEAD = struct.Struct(">ihiB")
# partition, error, high watermark, last stable offset, log start, aborted transactions (0: null, 1:
# none), preferred replica
_ANSWERED = struct.Struct(">ihqqqBi")
_END = b"\x00\x00"
"""No tagged field of the topic and the message."""
_NO_TOPIC = 1
_ONE = 2
"""The compact length of a list of one."""
_FEW = 20
"""The most partitions: their number is one byte, and no message is long."""
_SHORT = 0x7F
"""A length below it is one byte."""

_ID_BYTES = 16

# Version 11: replica id, max wait, min bytes, max bytes, isolation level, session id, session
# epoch, topics, length of the topic's name
_HEAD_V11 = struct.Struct(">iiiibiiih")
# partition, leader epoch, offset, log start, max bytes
_WANTED_V11 = struct.Struct(">iiqqi")
# forgotten topics, length of the rack
_FORGOTTEN_RACK_V11 = struct.Struct(">ih")
# throttle time, error, session id, topics
_RESPONSE_HEAD_V11 = struct.Struct(">ihii")
# partition, error, high watermark, last stable offset, log start, aborted transactions (-1: null),
# preferred replica, size of the records
_ANSWERED_V11 = struct.Struct(">ihqqqiii")

_prefixes: dict[tuple[bool, str], bytes] = {}


def _topic(topic: str, version: int) -> bytes:
    """Encode a topic as the version names it."""
    by_id = version >= FIRST_WITH_TOPIC_IDS
    prefix = _prefixes.get((by_id, topic))
    if prefix is None:
        prefix = id_bytes(topic) if by_id else string(topic, True)
        if len(prefix) > NAME_CACHED_MAX_BYTES:
            return prefix
        if len(_prefixes) >= NAMES_CACHED:
            _prefixes.clear()
        _prefixes[by_id, topic] = prefix
    return prefix


def decode_request(version: int, body: memoryview) -> FetchRequest | None:
    """Decode a request that names few partitions, forgets none, and has no tagged field but a
    follower's."""
    try:
        if version >= FIRST_WITHOUT_REPLICA_ID:
            replica_id, position = CONSUMER_REPLICA_ID, _HEAD_V15.size
            max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch, topics = (
                _HEAD_V15.unpack_from(body)
            )
        else:
            position = _HEAD_V12.size
            replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch, topics = (
                _HEAD_V12.unpack_from(body)
            )
        partitions: list[FetchPartition] = []
        if topics == _ONE:
            wanted, position = _decode_wanted(version, body, position)
            if wanted is None:
                return None
            partitions = wanted
        elif topics != _NO_TOPIC:
            return None
        forgotten, rack_size = _FORGOTTEN_RACK.unpack_from(body, position)
        if forgotten != _NO_TOPIC or not 1 <= rack_size <= _SHORT:
            return None
        position += 2
        rack = ""
        if rack_size > 1:
            end = position + rack_size - 1
            rack = name_from(bytes(body[position:end]))
            position = end
        replica_epoch = -1
        if body[position]:
            fields, tag, size, state_id, replica_epoch, inner = _REPLICA_STATE.unpack_from(
                body, position
            )
            if (fields, tag, size, inner) != (1, REPLICA_STATE_TAG, _STATE_BYTES, 0):
                return None
            if version >= FIRST_WITHOUT_REPLICA_ID:
                replica_id = state_id
            position += _REPLICA_STATE.size - 1
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    if position + 1 != len(body):
        return None
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        partitions,
        replica_id,
        isolation,
        session_id,
        epoch,
        [],
        rack,
        replica_epoch,
    )


def _decode_wanted(
    version: int, body: memoryview, position: int
) -> tuple[list[FetchPartition] | None, int]:
    """Decode the one topic of a request with its partitions; return the position behind it."""
    if version >= FIRST_WITH_TOPIC_IDS:
        end = position + _ID_BYTES
        raw = bytes(body[position:end])
        if len(raw) < _ID_BYTES:
            return None, position
        topic = id_text(raw)
    else:
        size = body[position]
        if not 1 <= size <= _SHORT:
            return None, position
        end = position + size
        raw = bytes(body[position + 1 : end])
        topic = cached_name(raw) or name_from(raw)
    partitions = body[end] - 1
    if not 1 <= partitions <= _FEW:
        return None, end
    end += 1
    wanted = []
    for _ in range(partitions):
        index, epoch, offset, last_epoch, start, size, tags = _WANTED.unpack_from(body, end)
        if tags:
            return None, end
        wanted.append(FetchPartition(topic, index, offset, size, epoch, last_epoch, start))
        end += _WANTED.size
    return (None if body[end] else wanted), end + 1


def encode_request(version: int, request: FetchRequest) -> list[Buffer] | None:
    """Encode what a follower sends: by name, a few partitions of one topic or none."""
    partitions = request.partitions
    if (
        len(partitions) > _FEW
        or request.forgotten
        or version >= FIRST_WITH_TOPIC_IDS
        or request.rack_id
    ):
        return None
    pieces = [
        _HEAD_V12.pack(
            request.replica_id,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
            request.session_id,
            request.session_epoch,
            _ONE if partitions else _NO_TOPIC,
        )
    ]
    if partitions:
        topic = partitions[0].topic
        pieces.append(_topic(topic, version))
        pieces.append(UINT8.pack(len(partitions) + 1))
        for name, index, offset, size, epoch, last_epoch, start, was_damaged, _, want in partitions:
            if name != topic or was_damaged or want is not None:
                return None
            pieces.append(_WANTED.pack(index, epoch, offset, last_epoch, start, size, 0))
        pieces.append(b"\x00")
    pieces.append(b"\x01\x01")
    if request.replica_epoch == -1:
        pieces.append(b"\x00")
    else:
        pieces.append(
            _REPLICA_STATE.pack(
                1, REPLICA_STATE_TAG, _STATE_BYTES, request.replica_id, request.replica_epoch, 0
            )
        )
    return [b"".join(pieces)]


def encode_response(version: int, response: FetchResponse) -> list[Buffer] | None:
    """Encode an answer about a few partitions of one topic that has no more to say than their
    watermarks and records."""
    partitions = response.partitions
    if not 1 <= len(partitions) <= _FEW or response.nodes:
        return None
    topic = partitions[0].topic
    pending = b"".join(
        (
            _RESPONSE_HEAD.pack(
                response.throttle_time_ms, response.error_code, response.session_id, _ONE
            ),
            _topic(topic, version),
            UINT8.pack(len(partitions) + 1),
        )
    )
    buffers: list[Buffer] = []
    for (
        name,
        index,
        error,
        watermark,
        stable,
        start,
        aborted,
        other,
        records,
        cut,
        led_by,
    ) in partitions:
        if (
            name != topic
            or aborted
            or cut is not None
            or led_by is not None
            or isinstance(records, SlicedRecords)
        ):
            return None
        pending += _ANSWERED.pack(
            index, error, watermark, stable, start, aborted is not None, other
        )
        size = 0 if records is None else len(records)
        pending += uvarint(size + 1)
        if records is not None and size:
            buffers.append(pending)
            buffers.append(records)
            pending = b""
        pending += b"\x00"
    buffers.append(pending + b"\x00\x00")
    return buffers


def decode_response(version: int, body: memoryview) -> FetchResponse | None:
    """Decode an answer about a few partitions of one topic by name, with nothing but watermarks and
    records."""
    if version >= FIRST_WITH_TOPIC_IDS:
        return None
    try:
        throttle_ms, error_code, session_id, topics = _RESPONSE_HEAD.unpack_from(body)
        if topics != _ONE:
            return None
        position = _RESPONSE_HEAD.size
        size = body[position]
        if not 1 <= size <= _SHORT:
            return None
        end = position + size
        raw = bytes(body[position + 1 : end])
        topic = cached_name(raw) or name_from(raw)
        partitions = body[end] - 1
        if not 1 <= partitions <= _FEW:
            return None
        position = end + 1
        answers: list[FetchPartitionResponse] = []
        for _ in range(partitions):
            index, error, watermark, stable, start, aborted, preferred = _ANSWERED.unpack_from(
                body, position
            )
            if aborted:
                return None
            position += _ANSWERED.size
            size = shift = 0
            while shift < 35:
                byte = body[position]
                position += 1
                size |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            else:
                return None
            end = position + size - 1
            # Records that are null, and tagged fields.
            if not size or body[end]:
                return None
            records = body[position:end]
            answers.append(
                FetchPartitionResponse(
                    topic, index, error, watermark, stable, start, None, preferred, records
                )
            )
            position = end + 1
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    # The position is checked as well: only the two empty tag buffers may follow.
    if bytes(body[position:]) != _END:
        return None
    return FetchResponse(answers, error_code, session_id, throttle_ms)


def decode_request_v11(body: memoryview) -> FetchRequest | None:
    """Decode a request of version 11 that names few partitions of one topic and forgets none."""
    try:
        (
            replica_id,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation,
            session_id,
            epoch,
            topics,
            name_size,
        ) = _HEAD_V11.unpack_from(body)
        if topics != 1 or name_size <= 0:
            return None
        end = _HEAD_V11.size + name_size
        raw = bytes(body[_HEAD_V11.size : end])
        topic = cached_name(raw) or name_from(raw)
        (partitions,) = INT32.unpack_from(body, end)
        if not 1 <= partitions <= _FEW:
            return None
        position = end + INT32.size
        wanted = []
        for _ in range(partitions):
            index, leader_epoch, offset, start, size = _WANTED_V11.unpack_from(body, position)
            wanted.append(FetchPartition(topic, index, offset, size, leader_epoch, -1, start))
            position += _WANTED_V11.size
        forgotten, rack_size = _FORGOTTEN_RACK_V11.unpack_from(body, position)
        if forgotten or rack_size < 0:
            return None
        position += _FORGOTTEN_RACK_V11.size
        end = position + rack_size
        rack = name_from(bytes(body[position:end])) if rack_size else ""
    except (struct.error, UnicodeDecodeError):
        return None
    if end != len(body):
        return None
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        wanted,
        replica_id,
        isolation,
        session_id,
        epoch,
        [],
        rack,
    )


def encode_response_v11(response: FetchResponse) -> list[Buffer] | None:
    """Encode an answer of version 11 about a few partitions of one topic without aborted
    transactions."""
    partitions = response.partitions
    if not 1 <= len(partitions) <= _FEW:
        return None
    topic = partitions[0].topic
    pending = b"".join(
        (
            _RESPONSE_HEAD_V11.pack(
                response.throttle_time_ms, response.error_code, response.session_id, 1
            ),
            string(topic, False),
            INT32.pack(len(partitions)),
        )
    )
    buffers: list[Buffer] = []
    for name, index, error, watermark, stable, start, aborted, other, records, _, _ in partitions:
        if name != topic or aborted or isinstance(records, SlicedRecords):
            return None
        size = 0 if records is None else len(records)
        pending += _ANSWERED_V11.pack(
            index, error, watermark, stable, start, -1 if aborted is None else 0, other, size
        )
        if records is not None and size:
            buffers.append(pending)
            buffers.append(records)
            pending = b""
    if pending:
        buffers.append(pending)
    return buffers
