"""The messages of simulated clients: batches of records and the requests around them."""

from collections.abc import Iterable

from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchRequest,
)
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.messages import add_partitions_to_txn, create_topics
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    seal,
)
from storage_engine.protocol.typed.projection import TypedWant

ANSWER_MS = 30_000
"""How long the broker may take for a request."""

FETCH_MAX_BYTES = 1 << 20


def make_batch(
    count: int = 1,
    *,
    payload: bytes = b"payload",
    base_offset: int = 0,
    epoch: int = -1,
    timestamp_ms: int = 1000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> memoryview:
    """Return a sealed batch of `count` records in a writable buffer; the records' content is
    arbitrary.

    `producer` is (producer id, producer epoch, sequence of the first record).
    """
    buffer = bytearray(HEADER_BYTES) + payload
    header = BatchHeader(
        base_offset,
        len(buffer) - LENGTH_END,
        epoch,
        MAGIC,
        0,
        attributes,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        *producer,
        count,
    )
    seal(buffer, 0, header)
    return memoryview(buffer)


def produce_request(
    topic: str,
    partition: int,
    batch: memoryview,
    *,
    acks: int,
    timeout_ms: int = ANSWER_MS,
    transactional_id: str | None = None,
) -> ProduceRequest:
    written = [ProducePartition(topic, partition, batch)]
    return ProduceRequest(transactional_id, acks, timeout_ms, written)


def fetch_request(
    topic: str,
    partition: int,
    offset: int,
    *,
    wait_ms: int = 0,
    rack: str = "",
    committed_only: bool = False,
    typed_want: TypedWant | None = None,
) -> FetchRequest:
    """Return a consumer's request."""
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=FETCH_MAX_BYTES,
        partitions=[FetchPartition(topic, partition, offset, FETCH_MAX_BYTES, want=typed_want)],
        rack_id=rack,
        isolation_level=READ_COMMITTED if committed_only else READ_UNCOMMITTED,
    )


def create_topic_request(
    topic: str, partitions: int, config: dict[str, str]
) -> create_topics.CreateTopicsRequest:
    creatable = create_topics.CreateTopicsRequest.CreatableTopic
    return create_topics.CreateTopicsRequest(
        topics=[
            creatable(
                name=topic,
                num_partitions=partitions,
                replication_factor=-1,
                assignments=[],
                configs=[
                    creatable.CreatableTopicConfig(name=key, value=value)
                    for key, value in config.items()
                ],
            )
        ],
        timeout_ms=ANSWER_MS,
        validate_only=False,
    )


def enlist_request(
    transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=some)
            for topic, some in numbers.items()
        ],
    )


def enlisted_codes(answer: add_partitions_to_txn.AddPartitionsToTxnResponse) -> list[int]:
    return [
        row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    ]
