"""Spark reads as columns what programs with Confluent's serializers write into typed topics, also
the change events of Debezium. Source: docs/typed-topics.md, Avro in place of JSON."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from chispa import assert_df_equality

from integration_tests.registry.registries import RegistryUnderFire
from integration_tests.typed_topics.avro_clients import (
    AT,
    RIDES,
    AvroValues,
    Outcomes,
    consumed,
    create_avro,
    producer,
    registry_process,
    row,
    wait_for_subject,
)
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema


@pytest.fixture(scope="module")
def registry(cluster, tmp_path_factory) -> Iterator[RegistryUnderFire]:
    with registry_process(cluster, tmp_path_factory.mktemp("registry")) as running:
        yield running


def test_what_serializers_write_they_and_spark_read_as_columns(
    cluster, registry, topic, spark, servers
):
    create_avro(cluster, topic, RIDES)
    wait_for_subject(registry, topic)
    values = AvroValues(registry, topic)
    writer = producer(cluster, **{"compression.type": "zstd"})
    for number in range(300):
        key = str(number).encode() if number % 2 else None
        writer.produce(topic, values.written(row(number)), key=key, headers=[("h", b"v")])
    writer.produce(topic, None, key=b"7")
    assert writer.flush(60) == 0
    messages = consumed(cluster, topic, 301)
    assert [(m.offset(), m.key()) for m in messages[:300]] == [
        (n, str(n).encode()) for n in range(300)
    ]
    assert [values.read(m.value()) for m in messages[:300]] == [row(n) for n in range(300)]
    assert (messages[300].key(), messages[300].value()) == (b"7", None)
    assert messages[7].headers() == [("h", b"v")]
    read = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    found = read.option("subscribe", topic).load()
    expected = spark.createDataFrame(
        [(n, n + 0.5, f"tag {n}", AT) for n in range(300)],
        "id BIGINT, fare DOUBLE, tag STRING, at TIMESTAMP",
    )
    columns = found.select("id", "fare", "tag", "at").orderBy("id")
    assert_df_equality(columns, expected, ignore_nullable=True)


ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.customers",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "before",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [
                        {"name": "id", "type": "long"},
                        {"name": "name", "type": ["null", "string"], "default": None},
                        {
                            "name": "paid",
                            "type": {
                                "type": "bytes",
                                "logicalType": "decimal",
                                "precision": 10,
                                "scale": 2,
                            },
                        },
                    ],
                },
            ],
            "default": None,
        },
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "table", "type": "string"}, {"name": "lsn", "type": "long"}],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
"""As Debezium writes it, with the key's field in front."""
CUSTOMER = "STRUCT<id: BIGINT, name: STRING, paid: DECIMAL(10, 2)>"
CHANGES = new_schema(
    parse_ddl(
        f"id BIGINT NOT NULL, before {CUSTOMER}, after {CUSTOMER}, "
        "source STRUCT<table: STRING, lsn: BIGINT>, op STRING, ts_ms BIGINT"
    ),
    ["id"],
)


def test_change_events_of_debezium_are_columns_in_spark(cluster, registry, topic, spark, servers):
    create_avro(cluster, topic, CHANGES, **{"cleanup.policy": "compact"})
    values = AvroValues(registry, topic, json.dumps(ENVELOPE))
    writer = producer(cluster)
    outcomes = Outcomes()

    def change(op: str, before: Any, after: Any, lsn: int) -> None:
        source = {"table": "customers", "lsn": lsn}
        envelope = {"id": 1, "before": before, "after": after, "source": source, "op": op}
        writer.produce(
            topic,
            values.written({**envelope, "ts_ms": 1_700_000_000_000 + lsn}),
            key=b"1",
            on_delivery=outcomes.note,
        )

    anna = {"id": 1, "name": "Anna", "paid": Decimal("12.50")}
    anne = {**anna, "name": "Anne"}
    change("c", None, anna, 1)
    change("u", anna, anne, 2)
    change("d", anne, None, 3)
    writer.produce(topic, None, key=b"1", on_delivery=outcomes.note)
    assert writer.flush(60) == 0
    assert (outcomes.offsets, outcomes.failures) == ([0, 1, 2, 3], [])
    read = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    wanted = "id,op,before,after,source,_deleted,_offset"
    changes = read.option("subscribe", topic).option("columns", wanted).load().orderBy("_offset")
    found = changes.selectExpr(
        "id", "op", "before.name AS before", "after.name AS after", "after.paid AS paid",
        "source.lsn AS lsn", "coalesce(_deleted, false) AS deleted",
    )  # fmt: skip
    expected = spark.createDataFrame(
        [
            (1, "c", None, "Anna", Decimal("12.50"), 1, False),
            (1, "u", "Anna", "Anne", Decimal("12.50"), 2, False),
            (1, "d", "Anne", None, None, 3, False),
            (1, None, None, None, None, None, True),
        ],
        "id BIGINT, op STRING, before STRING, after STRING, paid DECIMAL(10, 2), lsn BIGINT, "
        "deleted BOOLEAN",
    )
    assert_df_equality(found, expected, ignore_nullable=True)
