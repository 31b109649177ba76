"""DescribeProducers: the idempotent producers that a replica of a partition remembers. They show
which transaction hangs. Source: KIP-664."""

from collections.abc import Generator

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_state import ProducerEntry
from storage_engine.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)

NOT_KNOWN = -1
"""Stands for a sequence, time or offset that does not exist."""

_Topic = DescribeProducersResponse.TopicResponse
_Partition = _Topic.PartitionResponse


def handle(
    replicas: ReplicaManager,
    call: ApiCall[DescribeProducersResponse],
    request: DescribeProducersRequest,
) -> Steps:
    topics = []
    described: set[TopicPartition] = set()
    for topic in request.topics:
        rows = []
        for number in topic.partition_indexes:
            tp = TopicPartition(topic.name, number)
            # Each partition once: it may have many producers.
            if tp not in described:
                described.add(tp)
                rows.append((yield from _described(replicas, tp)))
            yield None
        topics.append(_Topic(name=topic.name, partitions=rows))
        yield None
    call.respond(DescribeProducersResponse(topics=topics))


def _described(replicas: ReplicaManager, tp: TopicPartition) -> Generator[None, None, _Partition]:
    try:
        # Not only of a leader: an operator asks a broker for all of its replicas.
        known = replicas.in_service(tp).log.producer_state
    except KafkaError as failure:
        return _Partition(
            partition_index=tp.partition,
            error_code=int(failure.code),
            error_message=str(failure),
            active_producers=[],
        )
    ongoing = known.transactions.ongoing
    producers = []
    # Their ids alone: producers may come and go while others have their turn.
    for producer_id in known.ids():
        entry = known.get(producer_id)
        if entry is not None:
            producers.append(_producer(entry, ongoing.get(producer_id, NOT_KNOWN)))
        yield None
    return _Partition(
        partition_index=tp.partition,
        error_code=0,
        error_message=None,
        active_producers=producers,
    )


def _producer(entry: ProducerEntry, first_offset: int) -> _Partition.ProducerState:
    last = entry.batches[-1] if entry.batches else None
    return _Partition.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=NOT_KNOWN if last is None else last.last_sequence,
        last_timestamp=NOT_KNOWN if last is None else last.timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=first_offset,
    )
