"""Transactions of confluent-kafka with JSON and of ours with tables, open at the same time on one
partition, committed and aborted: readers of every kind see whole transactions and nothing else.
With HEADRACE_FAULTS=full also while the leader is killed."""

import json
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as PythonPartition

from integration_tests.support.background import Background
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.transactional_clients import Confluent, Reader
from storage_engine.client import Consumer, Producer, TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, new_schema
from storage_engine.tests.sampling import ALL_FAULTS

SCHEMA = new_schema(parse_ddl("id BIGINT NOT NULL, writer STRING"))
ROUNDS = 9
THEIRS, OURS = 2, 3
"""Rows of a transaction."""


class ColumnsReader(Background):
    """Our consumer: ids and offsets, beside those who write."""

    def __init__(self, servers: str, topic: str, isolation: str) -> None:
        super().__init__()
        self._settings = {
            "bootstrap.servers": servers,
            "isolation.level": isolation,
            "fetch.max.wait.ms": 100,
        }
        self._tp = TopicPartition(topic, 0)
        self.ids: list[int] = []
        self.offsets: list[int] = []

    def _work(self) -> None:
        with Consumer(self._settings) as consumer:
            consumer.assign([self._tp])
            consumer.seek_to_beginning()
            while not self._stop.is_set():
                table = consumer.poll_table(200, columns=["id", "_offset"])
                self.ids += table["id"].to_pylist()
                self.offsets += table["_offset"].to_pylist()

    def wait_for(self, expected: list[int]) -> None:
        def there() -> bool:
            self.check()
            assert self.ids == expected[: len(self.ids)]
            return len(self.ids) == len(expected)

        wait_until(there, "all rows are read")
        assert self.offsets == sorted(set(self.offsets))


def value(number: int) -> bytes:
    return b'{"id":%d,"writer":"theirs"}' % number


def as_read(number: int, is_ours: bool) -> bytes:
    writer = "ours" if is_ours else "theirs"
    return json.dumps({"id": number, "writer": writer}, separators=(",", ":")).encode()


def read_by_kafka_python(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=servers.split(","),
        isolation_level="read_committed",
        consumer_timeout_ms=60_000,
    )
    consumer.assign([PythonPartition(topic, 0)])
    consumer.seek_to_beginning()
    values = [next(consumer).value for _ in range(count)]
    consumer.close()
    return values


@pytest.mark.parametrize("kills", [False, True] if ALL_FAULTS else [False])
def test_readers_of_every_kind_see_whole_transactions_of_both_and_nothing_else(cluster, kills):
    servers, topic = cluster.bootstrap_servers, f"typed-both-transactions-{kills}".lower()
    config = {SCHEMA_SETTING: SCHEMA.to_json(), "min.insync.replicas": "2"}
    create_topic(cluster, topic, config=config)
    wait_for_isr(admin(cluster), topic, 3)
    with (
        Reader(servers, topic, 1, "read_committed") as theirs,
        ColumnsReader(servers, topic, "read_committed") as ours,
    ):
        rows = written(cluster, topic, kills)
        committed = [(number, is_ours) for number, is_ours, is_committed in rows if is_committed]
        assert 0 < len(committed) < len(rows)
        expected = [as_read(*row) for row in committed]
        theirs.wait_for({0: expected})
        ours.wait_for([number for number, _ in committed])
        assert read_by_kafka_python(servers, topic, len(expected)) == expected
    with (
        Reader(servers, topic, 1, "read_uncommitted") as theirs,
        ColumnsReader(servers, topic, "read_uncommitted") as ours,
    ):
        theirs.wait_for({0: [as_read(number, is_ours) for number, is_ours, _ in rows]})
        ours.wait_for([number for number, _, _ in rows])


def written(cluster: Any, topic: str, kills: bool) -> list[tuple[int, bool, bool]]:
    """Id, whether it is ours, and whether it is committed, of each row in the order of offsets."""
    servers = cluster.bootstrap_servers
    rows: list[tuple[int, bool, bool]] = []
    foreign = Confluent(servers, f"{topic}-theirs")
    settings = {"bootstrap.servers": servers, "transactional.id": f"{topic}-ours"}
    with Producer(settings) as producer:
        producer.init_transactions()
        for turn in range(ROUNDS):
            they_commit, we_commit = turn % 3 != 1, turn % 3 != 2
            foreign.begin()
            producer.begin_transaction()
            first = turn * 100
            for number in range(first, first + THEIRS):
                foreign.write(topic, 0, value(number))
                rows.append((number, False, they_commit))
            if kills and turn == ROUNDS // 2:
                victim = leader_of(admin(cluster), topic)
                cluster.kill_broker(victim)
            ids = range(first + THEIRS, first + THEIRS + OURS)
            producer.send_table(topic, pa.table({"id": ids, "writer": ["ours"] * OURS}))
            producer.flush()
            rows += [(number, True, we_commit) for number in ids]
            foreign.write(topic, 0, value(first + 99))
            rows.append((first + 99, False, they_commit))
            (producer.commit_transaction if we_commit else producer.abort_transaction)()
            (foreign.commit if they_commit else foreign.abort)()
    foreign.close()
    if kills:
        cluster.start_broker(victim)
        wait_for_isr(admin(cluster), topic, 3)
    return rows
