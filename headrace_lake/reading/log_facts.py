"""Facts about the logs of partitions: where they begin and end, and where leader epochs
do.

Source: KIP-101, KIP-320; the ListOffsets and OffsetForLeaderEpoch APIs.
"""

from collections.abc import Mapping
from typing import NamedTuple

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.replication.leader_epochs import EpochEnd
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.spec import ApiSpec
from storage_engine.protocol.messages.offset_for_leader_epoch import API as EPOCH_ENDS
from storage_engine.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

NO_EPOCH = -1

_Asked = tuple[
    int,
    ApiSpec[OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse],
    OffsetForLeaderEpochRequest,
]
_Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
_Partition = _Topic.OffsetForLeaderPartition


class LogFacts(NamedTuple):
    """One partition."""

    start_offset: int
    end_offset: int
    """The high watermark."""
    epoch_end: EpochEnd | None
    """None where no epoch was asked for."""


def log_facts(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LogFacts]:
    """The facts of these partitions; `epochs`: the leader epoch that is asked for, NO_EPOCH for
    none. KafkaError or DeadlineExceededError where a leader is away."""
    # The epochs first: a log that is cut between the two answers ends before it is expected to.
    ends = epoch_ends(cluster, {tp: each for tp, each in epochs.items() if each != NO_EPOCH})
    starts = cluster.list_offsets(dict.fromkeys(epochs, EARLIEST))
    latest = cluster.list_offsets(dict.fromkeys(epochs, LATEST))
    return {tp: LogFacts(starts[tp], latest[tp], ends.get(tp)) for tp in epochs}


def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd]:
    """Where the leader epochs end, by the partitions' leaders."""
    retry = Retry("OffsetForLeaderEpoch", Deadline.after(cluster.deadline_ms))
    found: dict[TopicPartition, EpochEnd] = {}
    while True:
        left = {tp: epoch for tp, epoch in epochs.items() if tp not in found}
        if not left:
            return found
        error: HeadraceError | None = None
        for answer in cluster.request_all(_requests(cluster, left)):
            error = _take(answer, found) or error
        if error is not None:
            retry.pause(error)
            cluster.refresh({tp.topic for tp in left})


def _requests(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> list[_Asked]:
    by_leader: dict[int, dict[str, list[_Partition]]] = {}
    for tp, epoch in epochs.items():
        leader = cluster.leader(tp)
        row = _Partition(
            partition=tp.partition, current_leader_epoch=leader.epoch, leader_epoch=epoch
        )
        by_leader.setdefault(leader.broker_id, {}).setdefault(tp.topic, []).append(row)
    return [
        (
            broker_id,
            EPOCH_ENDS,
            OffsetForLeaderEpochRequest(
                topics=[_Topic(topic=topic, partitions=rows) for topic, rows in topics.items()]
            ),
        )
        for broker_id, topics in by_leader.items()
    ]


def _take(
    answer: "OffsetForLeaderEpochResponse | HeadraceError", found: dict[TopicPartition, EpochEnd]
) -> HeadraceError | None:
    """Add what an answer says to `found`; return its first error."""
    if isinstance(answer, HeadraceError):
        return answer
    failure: KafkaError | None = None
    for topic in answer.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.topic, row.partition)
            code = ErrorCode.of(row.error_code)
            if code is ErrorCode.NONE:
                found[tp] = EpochEnd(row.leader_epoch, row.end_offset)
            elif failure is None:
                failure = KafkaError(f"leader epochs of {tp}: {code.meaning}", code)
    return failure
