"""A simulated broker with typed topics, and batches for them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import TopicSchema, new_schema
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import BY_NAME, FetchPartition, FetchRequest
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
)
from storage_engine.protocol.records.record_batch import Codec
from storage_engine.protocol.typed.projection import WANT_FRAMES, TypedWant
from storage_engine.protocol.typed.typed_encoder import iter_typed

DDL = "id BIGINT NOT NULL, fare DOUBLE, tag STRING"
SCHEMA = new_schema(parse_ddl(DDL), ["id"])
TRIPS = TopicPartition("trips", 0)
ROWS = pa.schema([("id", pa.int64()), ("fare", pa.float64()), ("tag", pa.string())])


def create_typed(
    cluster: SimulatedCluster, topic: str = "trips", schema: TopicSchema = SCHEMA, **config: str
) -> None:
    result = cluster.create_topic(topic, headrace_schema=schema.to_json(), **config)
    assert result.error_code == 0, result
    tp = TopicPartition(topic, 0)

    def is_led() -> bool:
        partition = cluster[1].replicas.get(tp)
        return partition is not None and partition.leader_id != -1

    cluster.loop.run_until(is_led)


def topic_id_of(cluster: SimulatedCluster, tp: TopicPartition = TRIPS) -> UUID:
    partition = cluster[1].replicas.get(tp)
    assert partition is not None
    return partition.topic_id


def typed_batch(
    topic_id: UUID,
    first: int,
    count: int,
    *,
    schema: TopicSchema = SCHEMA,
    tag: str = "a",
    **named: Any,
) -> bytearray:
    """One batch of rows with the ids from `first` on."""
    ids = range(first, first + count)
    rows = pa.table(
        {"id": ids, "fare": [each / 2 for each in ids], "tag": [tag] * count}, schema=ROWS
    )
    (record_batch,) = rows.combine_chunks().to_batches()
    (batch,) = iter_typed(
        record_batch,
        schema,
        schema.latest,
        topic_id,
        batch_bytes=64 << 20,
        **{"compression": Codec.LZ4, **named},
    )
    return bytearray(batch.data)


def produce(
    cluster: SimulatedCluster,
    records: bytes | bytearray,
    *,
    tp: TopicPartition = TRIPS,
    acks: int = -1,
    version: int = 8,
) -> list[Any]:
    request = ProduceRequest(
        None, acks, 30_000, [ProducePartition(tp.topic, tp.partition, memoryview(records))]
    )
    return cluster.ask(1, PRODUCE, version, request)


def produced(
    cluster: SimulatedCluster, records: bytes | bytearray, **named: Any
) -> ProducePartitionResponse:
    """Produce, and return the answer for the partition."""
    (answer,) = cluster.answer(produce(cluster, records, **named)).partitions
    assert isinstance(answer, ProducePartitionResponse)
    return answer


def reason(answer: ProducePartitionResponse) -> str:
    """The message of a refusal."""
    assert answer.error_code and answer.error_message
    return answer.error_message


def fetch(
    cluster: SimulatedCluster,
    offset: int = 0,
    *,
    tp: TopicPartition = TRIPS,
    want: TypedWant | None = None,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    wait_ms: int = 0,
    min_bytes: int = 1,
    replica: int = -1,
    isolation: int = 0,
    broker: int = 1,
) -> list[Any]:
    """Ask as a consumer that names the topic, or as a follower."""
    wanted = FetchPartition(tp.topic, tp.partition, offset, partition_max_bytes, want=want)
    request = FetchRequest(
        wait_ms, min_bytes, max_bytes, [wanted], replica_id=replica, isolation_level=isolation
    )
    return cluster.ask(broker, BY_NAME, 12, request)


def fetched(cluster: SimulatedCluster, offset: int = 0, **named: Any) -> Any:
    """Fetch, and return the answer for the partition."""
    (answer,) = cluster.answer(fetch(cluster, offset, **named)).partitions
    return answer


def columns(*ids: int, comparisons: Sequence[Any] = ()) -> TypedWant:
    return TypedWant(WANT_FRAMES, ids, tuple(comparisons))


assert FETCH.key == BY_NAME.key
