"""Writes rows in transactions, some of which it aborts, until it is told to stop."""

import time
from decimal import Decimal

import pyarrow as pa

from integration_tests.support.background import Background
from integration_tests.support.cluster_support import HasBootstrapServers
from storage_engine.client import Producer
from storage_engine.core.errors import HeadraceError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, new_schema

DDL = "id BIGINT NOT NULL, name STRING, fare DOUBLE, tip DECIMAL(9,2), at TIMESTAMP"
COLUMNS = ("id", "name", "fare", "tip", "at")
TYPED = {SCHEMA_SETTING: new_schema(parse_ddl(DDL)).to_json()}
"""The settings of a topic with these columns."""

ABORTED_EVERY = 4
"""One transaction in so many."""

_ARROW = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("fare", pa.float64()),
        pa.field("tip", pa.decimal128(9, 2)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)


def rows(first: int, count: int) -> pa.Table:
    """Rows that follow from their ids."""
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([None if n % 7 == 0 else f"name {n % 100}" for n in ids]),
            "fare": pa.array([n / 4 for n in ids], pa.float64()),
            "tip": pa.array([Decimal(n % 500).scaleb(-2) for n in ids], pa.decimal128(9, 2)),
            "at": pa.array([n * 1_000_000 for n in ids], pa.int64()).cast(_ARROW.field("at").type),
        },
        schema=_ARROW,
    )


class SteadyTransactions(Background):
    """One transaction after the other, of `rows_each` rows."""

    def __init__(
        self, cluster: HasBootstrapServers, topic: str, *, rows_each: int, pause_s: float = 0.0
    ) -> None:
        super().__init__()
        self._servers = cluster.bootstrap_servers
        self._topic = topic
        self._rows_each = rows_each
        self._pause_s = pause_s
        self.committed = 0
        """Rows in transactions whose commit was answered."""

    def _work(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                with self._producer() as producer:
                    while not self._stop.is_set():
                        self._transaction(producer, number)
                        number += 1
                        time.sleep(self._pause_s)
            except HeadraceError:
                # A broker was killed: whoever takes the id over ends what was open.
                number += 1

    def _producer(self) -> Producer:
        producer = Producer(
            {"bootstrap.servers": self._servers, "transactional.id": f"to-{self._topic}"}
        )
        producer.init_transactions()
        return producer

    def _transaction(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        producer.send_table(self._topic, rows(number * self._rows_each, self._rows_each))
        if number % ABORTED_EVERY == ABORTED_EVERY - 1:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            self.committed += self._rows_each
