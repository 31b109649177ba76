"""A topic `_schemas` in a simulated cluster, and records in it as a registry writes them."""

import json
from collections.abc import Iterable

import pyarrow as pa

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.schemas.schemas_log import SchemasLog
from storage_engine.core.ids import TopicPartition
from storage_engine.core.schemas.registry.records import Record
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.core.schemas.registry.replaying import MemoryLog

SCHEMAS = TopicPartition("_schemas", 0)


def text_of(name: str, **fields: str) -> str:
    rows = [{"name": field, "type": kind} for field, kind in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": rows}, separators=(",", ":"))


def leader_of(cluster: SimulatedCluster, tp: TopicPartition = SCHEMAS) -> int | None:
    for broker in cluster.brokers:
        partition = broker.replicas.get(tp) if broker.serving else None
        if partition is not None and partition.leader is not None:
            return broker.id
    return None


def create_schemas(cluster: SimulatedCluster) -> None:
    assert cluster.create_topic(SCHEMAS.topic, cleanup_policy="compact").error_code == 0
    cluster.loop.run_until(lambda: leader_of(cluster) is not None)


def batch_of(records: Iterable[Record]) -> bytes:
    keys, values = zip(*records, strict=True)
    (batch,) = encode_batches(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        now_ms=1000,
        batch_bytes=1 << 30,
    )
    return bytes(batch.data)


def write(cluster: SimulatedCluster, batch: bytes) -> None:
    leader = leader_of(cluster)
    assert leader is not None
    part = ProducePartition(*SCHEMAS, memoryview(bytearray(batch)))
    request = ProduceRequest(None, -1, 30_000, [part])
    (answer,) = cluster.answer(cluster.ask(leader, PRODUCE, 8, request)).partitions
    assert answer.error_code == 0, answer


class WrittenSchemas:
    """The topic as a registry writes it: each change a batch of its own."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.log = MemoryLog()
        self._written = 0

    def register(self, subject: str, text: str, **more: object) -> int:
        found = self.log.register(subject, text, **more)
        self.flush()
        return found

    def flush(self) -> None:
        new = self.log.records[self._written :]
        self._written += len(new)
        if new:
            write(self.cluster, batch_of(new))


def schemas_of(cluster: SimulatedCluster, broker: int = 1) -> SchemasLog:
    return cluster[broker].parts.schemas.log


def read_to_end(cluster: SimulatedCluster, broker: int = 1) -> bool:
    """Whether all that is committed now was read."""
    answers: list[bool] = []
    schemas_of(cluster, broker).when_read(answers.append)
    return cluster.answer(answers)
