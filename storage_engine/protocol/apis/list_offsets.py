"""ListOffsets: the first and last offset of a partition, or the first at or after a time (R-LOG11).

Versions: 1 one offset per partition. 2 isolation level. 4 leader epoch. 6 flexible. 7 offset of the
largest timestamp (KIP-734). 8 first offset that is not only in remote storage (KIP-405). 9 last
offset in remote storage (KIP-1005). 10 how long to wait for remote storage (KIP-1075). 11 first
offset that is not in remote storage yet (KIP-1023). Source: Kafka's ListOffsetsRequest.json and
ListOffsetsResponse.json.
"""

from collections.abc import Sequence
from typing import NamedTuple

from storage_engine.protocol.apis.fields import int8, int16, int32, int64, rows_by_topic
from storage_engine.protocol.apis.struct_codec import api, lay_out

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
"""The timestamp that asks for the offset of the record with the largest timestamp."""
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

DEFAULT_TIMEOUT_MS = 30_000


class ListOffsetsPartition(NamedTuple):
    """The request for one partition; `timestamp` is in ms, or one of the constants above."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


class ListOffsetsRequest(NamedTuple):
    """One request per partition."""

    partitions: Sequence[ListOffsetsPartition]
    replica_id: int = -1
    isolation_level: int = 0
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    """How long to wait for remote storage; there is none here."""


class ListOffsetsPartitionResponse(NamedTuple):
    """`offset` and `timestamp` are -1 when no record is at or after the requested time."""

    topic: str
    partition: int
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsResponse(NamedTuple):
    """Answer to a ListOffsetsRequest."""

    partitions: Sequence[ListOffsetsPartitionResponse]
    throttle_time_ms: int = 0


lay_out(
    ListOffsetsPartition,
    partition=int32(),
    current_leader_epoch=int32(4, default=-1),
    timestamp=int64(),
)
lay_out(
    ListOffsetsRequest,
    replica_id=int32(),
    isolation_level=int8(2),
    partitions=rows_by_topic(ListOffsetsPartition),
    timeout_ms=int32(10, default=DEFAULT_TIMEOUT_MS),
)
lay_out(
    ListOffsetsPartitionResponse,
    partition=int32(),
    error_code=int16(),
    timestamp=int64(),
    offset=int64(),
    leader_epoch=int32(4, default=-1),
)
lay_out(
    ListOffsetsResponse,
    throttle_time_ms=int32(2),
    partitions=rows_by_topic(ListOffsetsPartitionResponse),
)

API = api(2, ListOffsetsRequest, ListOffsetsResponse)
