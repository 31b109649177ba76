"""The code of docs/spark.md and of docs/typed-topics.md runs as it stands there."""

import json
import sqlite3
import struct

import pyarrow as pa
import pytest
from pyspark.sql import functions
from pyspark.sql.streaming.query import StreamingQueryManager

from integration_tests.documents.blocks import TYPED_CONFIG, blocks
from integration_tests.support.cluster_support import create_topic
from integration_tests.support.spark_support import produce
from storage_engine.client import Producer
from storage_engine.tests.client.registry.small_registry import small_registry

ORDERS = [
    {"value": json.dumps({"item": "tea"}), "partition": 0},
    {"value": "no order", "partition": 1},
]


class Reader:
    """What a reader has at hand when a block is run."""

    def __init__(self, spark, cluster, topic, folder) -> None:
        self.spark = spark
        self.folder = folder
        self.names = {"spark": spark, "F": functions, "servers": cluster.bootstrap_servers}
        self.names["folder"] = str(folder / "typed")
        self._written = [
            ("127.0.0.1:9092", cluster.bootstrap_servers),
            ("/data/checkpoints", str(folder)),
            ("/etc/headrace", str(folder)),
            ("postgresql+psycopg://me@db/shop", f"sqlite:///{folder}/shop.db"),
            ('"checkpointLocation", "…"', f'"checkpointLocation", "{folder}/shop"'),
            ('token="…"', 'token="secret"'),
            *((f'"{name}', f'"{topic}-{name}') for name in ("orders", "trips", "high-fares")),
            ("'orders-", f"'{topic}-orders-"),
        ]

    def own(self, text: str) -> str:
        for written, own in self._written:
            text = text.replace(written, own)
        return text

    def run(self, block: str) -> None:
        exec(compile(self.own(block), "a block", "exec"), self.names)
        for query in self.spark.streams.active:
            query.processAllAvailable()
            query.stop()
            assert query.exception() is None

    def count(self, topic: str) -> int:
        reader = self.spark.read.format("headrace").option("subscribe", topic)
        return reader.option("bootstrap.servers", self.names["servers"]).load().count()


@pytest.fixture
def reader(spark, spark_cluster, topic, tmp_path, monkeypatch):
    added = []
    add = StreamingQueryManager.addListener

    def noted(manager, listener):
        added.append(listener)
        add(manager, listener)

    monkeypatch.setattr(StreamingQueryManager, "addListener", noted)
    create_topic(spark_cluster, f"{topic}-orders", partitions=2)
    for name in ("copy", "valid", "rejected", "audit", "first", "others", "checked"):
        create_topic(spark_cluster, f"{topic}-orders-{name}")
    create_topic(spark_cluster, f"{topic}-trips", config=TYPED_CONFIG)
    produce(spark_cluster.bootstrap_servers, f"{topic}-orders", ORDERS)
    with Producer({"bootstrap.servers": spark_cluster.bootstrap_servers}) as producer:
        at = pa.array([1_800_000_000_000_000] * 2, pa.timestamp("us", "UTC"))
        rows = pa.table({"id": [1, 2], "fare": [9.5, 12.0], "at": at})
        producer.send_table(f"{topic}-trips", rows)
    yield Reader(spark, spark_cluster, topic, tmp_path)
    for listener in added:
        spark.streams.removeListener(listener)


def test_the_code_for_spark_runs(reader, topic):
    python = blocks("docs/spark.md", "python")
    copy, threads, from_file, lag, console, several, typed, _, _, keyed, letters = python
    reader.run(copy)
    assert reader.count(f"{topic}-orders-copy") == len(ORDERS)

    written: list[int] = []
    reader.names |= {"parts": [1, 2], "write": written.append}
    reader.run(threads)
    assert sorted(written) == [1, 2]

    properties = [
        line.partition("=")[0] for line in blocks("docs/spark.md", "properties")[0].split()
    ]
    assert "sasl.password" in properties
    (reader.folder / "app.properties").write_text("security.protocol=PLAINTEXT\n")
    option = f'.option("bootstrap.servers", servers).option("subscribe", "{topic}-orders").load()'
    reader.run(f"from_file = {from_file.strip().removesuffix('…')}{option}")
    assert reader.names["from_file"].isStreaming

    # The rows are there before the stream begins.
    typed = typed.replace(
        '.option("columns"', '.option("startingOffsets", "earliest").option("columns"'
    )
    for block in (lag, console, several, typed):
        reader.run(block)
    one_each = ("valid", "rejected", "first", "others")
    assert [reader.count(f"{topic}-orders-{name}") for name in one_each] == [1] * len(one_each)
    assert reader.count(f"{topic}-orders-audit") == len(ORDERS)
    assert reader.count(f"{topic}-high-fares") == 1

    reader.names["rows"] = reader.names["orders"]
    reader.run(keyed)
    with sqlite3.connect(reader.folder / "shop.db") as shop:
        assert shop.execute(f'SELECT count(*) FROM "{topic}-orders"').fetchone() == (len(ORDERS),)

    reader.run(letters)
    writer = 'rows.writeStream.format("headrace").option("kafka.bootstrap.servers", servers)'
    reader.run(f'{writer}.option("checkpointLocation", folder + "-letters").start()')
    assert reader.count(f"{topic}-orders-checked") == 1
    assert reader.count(f"{topic}-orders-rejected") == 2


def test_the_code_for_avro_runs(reader, spark_cluster, topic):
    copy, letters = blocks("docs/spark.md", "python")[7:9]
    for name in ("rides", "dear-rides", "rides-checked", "rides-rejected"):
        create_topic(spark_cluster, f"{topic}-{name}")
    schema = """{"type": "record", "name": "Ride", "fields": [
        {"name": "id", "type": "int"}, {"name": "fare", "type": "float"}]}"""
    with small_registry() as registry:
        assert registry.register(f"{topic}-rides-value", schema) == 1
        rides = [b"\0\0\0\0\1\2" + struct.pack("<f", fare) for fare in (20.0, -1.0)]
        records = [{"value": value} for value in (*rides, b"damaged")]

        def own(block):
            return (
                block.replace('"rides', f'"{topic}-rides')
                .replace('"dear', f'"{topic}-dear')
                .replace("http://127.0.0.1:8081", registry.url)
                .replace('"subscribe"', '"startingOffsets", "earliest").option("subscribe"')
            )

        produce(reader.names["servers"], f"{topic}-rides", records[:2])
        reader.run(own(copy))
        assert reader.count(f"{topic}-dear-rides") == 1
        produce(reader.names["servers"], f"{topic}-rides", records[2:])
        reader.run(own(letters))
        writer = 'checked.writeStream.format("headrace").option("bootstrap.servers", servers)'
        reader.run(f'{writer}.option("checkpointLocation", folder + "-avro").start()')
    assert reader.count(f"{topic}-rides-checked") == 1
    assert reader.count(f"{topic}-rides-rejected") == 2


def test_the_code_for_typed_topics_runs(reader, topic):
    reader.names["rides"] = reader.spark.readStream.format("headrace").options(
        **{"bootstrap.servers": reader.names["servers"], "subscribe": f"{topic}-trips"}
    ).load().where("id = 2")  # fmt: skip
    create = reader.own('"trips"')
    assert create == f'"{topic}-trips"'
    reader.run(blocks("docs/typed-topics.md", "python")[0])


def test_the_statements_of_sql_run(reader, spark, topic):
    read, insert = blocks("docs/spark.md", "sql")[0].strip().split("\n")
    options = f"'bootstrap.servers' '{reader.names['servers']}', 'subscribe' '{topic}-orders'"
    spark.sql(f"CREATE TABLE rides USING headrace OPTIONS ({options})")
    spark.sql("CREATE TABLE new_rides (key BINARY, value BINARY) USING headrace")
    try:
        for written, own in (
            ("'127.0.0.1:9092'", f"'{reader.names['servers']}'"),
            ("'rides'", f"'{topic}-orders'"),
            ("SELECT …", "SELECT CAST('k' AS BINARY), CAST('v' AS BINARY)"),
            (";", ""),
        ):
            read, insert = read.replace(written, own), insert.replace(written, own)
        spark.sql(insert)
        assert spark.sql(read).first()[0] == len(ORDERS) + 1
    finally:
        spark.sql("DROP TABLE rides")
        spark.sql("DROP TABLE new_rides")
