"""A typed topic, whose schema gets a column in the second round."""

import pyarrow as pa

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.lake.lakes import typed_log
from integration_tests.upgrades.checks.check import Always
from storage_engine.client import Admin, NewTopic, Producer

TOPIC = "typed"
FIRST, THEN = "id BIGINT NOT NULL, name STRING", "id BIGINT NOT NULL, name STRING, size BIGINT"


class TypedTopics(Always):
    def initialize(self, cluster: MixedCluster) -> None:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            made = NewTopic(name=TOPIC, partitions=1, replication_factor=3)
            admin.create_topics([made], schema=FIRST, key=["id"])
        self._rows: list[dict[str, object]] = []

    def work(self, cluster: MixedCluster) -> None:
        number = len(self._rows)
        row: dict[str, object] = {"id": number, "name": f"row {number}"}
        if number == 1:
            with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                admin.alter_schema(TOPIC, THEN)
        if number >= 1:
            row["size"] = number
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.send_table(TOPIC, pa.Table.from_pylist([row]))
            producer.flush()
        self._rows.append(row)

    def validate(self, cluster: MixedCluster) -> None:
        columns = ["id", "name"] + (["size"] if len(self._rows) > 1 else [])
        rows = typed_log(cluster, TOPIC, columns).select(columns).to_pylist()
        assert rows == [{name: row.get(name) for name in columns} for row in self._rows]
