"""Reads the batches, as bytes, that one replica of a partition holds, whether it leads or not.

The request is a Fetch with replica id -2, which every replica answers as it answers a consumer, and
which changes no state of a replica. One answer is in memory at a time. Source: Kafka's debugging
consumer, R-TOOL2.
"""

from collections.abc import Iterable
from typing import NamedTuple

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import CorruptRecordError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import (
    ANY_REPLICA_ID,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)
from storage_engine.protocol.apis.fetch import BY_NAME as FETCH
from storage_engine.protocol.records.record_batch import BatchHeader, iter_headers
from storage_engine.protocol.typed.projection import WANT_STORED, TypedWant

FETCH_BYTES = 1 << 20
"""The size of one answer; a single larger batch is returned whole."""

_AS_STORED = TypedWant(WANT_STORED)
"""Without it a replica would show rows of typed batches as JSON records."""

_BEFORE_ANY = -1
"""An offset that every replica refuses, with where it begins and its high watermark."""


class ReplicaState(NamedTuple):
    """The first offset of a replica, and the end of its committed records."""

    log_start_offset: int
    high_watermark: int


class ReplicaBatch(NamedTuple):
    """A batch as a replica holds it."""

    header: BatchHeader
    data: bytes
    """Header and records."""


def replica_states(
    cluster: Cluster, broker_id: int, partitions: Iterable[TopicPartition], *, timeout_ms: int
) -> dict[TopicPartition, ReplicaState | KafkaError]:
    """The states of replicas on one broker. Raises KafkaError or DeadlineExceededError when it does
    not answer."""
    wanted = [FetchPartition(*tp, _BEFORE_ANY, 0) for tp in partitions]
    found: dict[TopicPartition, ReplicaState | KafkaError] = {}
    for answer in _fetch(cluster, broker_id, wanted, timeout_ms):
        tp = TopicPartition(answer.topic, answer.partition)
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            found[tp] = ReplicaState(answer.log_start_offset, answer.high_watermark)
        else:
            found[tp] = KafkaError(f"{tp} on broker {broker_id}: {code.meaning}", code)
    return found


class ReplicaReader:
    """The batches of one replica from `start_offset` to `end_offset` (exclusive), one by one."""

    def __init__(
        self,
        cluster: Cluster,
        broker_id: int,
        tp: TopicPartition,
        *,
        start_offset: int,
        end_offset: int,
        timeout_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.start_offset = start_offset
        """Moves up when retention deletes what has not been read yet."""
        self._cluster = cluster
        self._tp = tp
        self._position = start_offset
        self._end_offset = end_offset
        self._timeout_ms = timeout_ms
        self._batches: list[ReplicaBatch] = []
        """The batches that are fetched and not read, the next one last."""

    def next(self) -> ReplicaBatch | None:
        """Returns None at the end. Raises KafkaError, DeadlineExceededError, CorruptRecordError."""
        if not self._batches and self._position < self._end_offset:
            self._fill()
        return self._batches.pop() if self._batches else None

    def _fill(self) -> None:
        while self._position < self._end_offset:
            wanted = FetchPartition(*self._tp, self._position, FETCH_BYTES, want=_AS_STORED)
            (answer,) = _fetch(self._cluster, self.broker_id, [wanted], self._timeout_ms)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset > self._position:
                self._position = self.start_offset = answer.log_start_offset
                continue
            if code is not ErrorCode.NONE:
                raise KafkaError(f"{self._tp} at offset {self._position}: {code.meaning}", code)
            assert answer.records is None or isinstance(answer.records, memoryview)
            if not answer.records:
                # A compacted log may end in a gap.
                self._position = self._end_offset
                return
            self._take(answer.records)
            return

    def _take(self, records: memoryview) -> None:
        batches = []
        for position, header in iter_headers(records):
            if header.next_offset <= self._position:
                raise CorruptRecordError(
                    f"{self._tp} on broker {self.broker_id}: a batch that ends at offset "
                    f"{header.last_offset} lies behind one that ends at {self._position - 1}"
                )
            if header.base_offset >= self._end_offset:
                self._position = self._end_offset
                break
            self._position = header.next_offset
            data = bytes(records[position : position + header.size_in_bytes])
            batches.append(ReplicaBatch(header, data))
        self._batches = batches[::-1]


def _fetch(
    cluster: Cluster, broker_id: int, wanted: list[FetchPartition], timeout_ms: int
) -> list[FetchPartitionResponse]:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        partitions=wanted,
        replica_id=ANY_REPLICA_ID,
    )
    response = cluster.request(broker_id, FETCH, request, timeout_ms=timeout_ms)
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(f"fetch from broker {broker_id}: {code.meaning}", code)
    return list(response.partitions)
