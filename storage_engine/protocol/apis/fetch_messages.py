"""The messages of Fetch, and the versions at which they change. The codecs are in `fetch`."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from storage_engine.core.ports import LogSlice, SlicedRecords
from storage_engine.protocol.apis.current_leaders import CurrentLeader, LeaderNode
from storage_engine.protocol.typed.projection import TypedWant

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


def with_partitions(request: FetchRequest, partitions: Sequence[FetchPartition]) -> FetchRequest:
    """Return the request with these partitions, and with none forgotten: `_replace` at half the
    cost, for what every fetch of a session does."""
    head, tail = request[:3], request[4:8]
    return tuple.__new__(FetchRequest, (*head, partitions, *tail, (), *request[9:]))


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
    """Who leads it now, with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""


class FetchResponse(NamedTuple):
    """Answer to a FetchRequest."""

    partitions: Sequence[FetchPartitionResponse]
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    nodes: Sequence[LeaderNode] = ()
    """The brokers that partitions name in `current_leader`."""
