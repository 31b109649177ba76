"""Property: rows of any schema, written as a table and as JSON by librdkafka, are the same rows to
our consumer, to librdkafka, and to who reads the segment files with Arrow alone."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from integration_tests.support.cluster_support import admin, create_topic, leader_of, wait_until
from storage_engine.client import Consumer, Producer, TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, TopicSchema, new_schema
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.tests.protocol.typed.json_support import parsed, plain_json, same
from storage_engine.tests.protocol.typed.test_specification import documented_reader
from storage_engine.tests.protocol.typed.typed_values import comparable, rows_of, schemas
from storage_engine.tests.sampling import ALL_FAULTS

FRAMES = 60 if ALL_FAULTS else 3

EVERY_TYPE = new_schema(
    parse_ddl(
        "b BOOLEAN, t TINYINT, s SMALLINT NOT NULL, i INT, l BIGINT, f FLOAT, d DOUBLE,"
        " small DECIMAL(9,2), large DECIMAL(38,38), text STRING, raw BINARY, day DATE,"
        " at TIMESTAMP, local TIMESTAMP_NTZ, wait INTERVAL DAY TO SECOND,"
        " a ARRAY<ARRAY<INT NOT NULL>>, m MAP<STRING, STRUCT<x: DOUBLE, at: TIMESTAMP NOT NULL>>,"
        " n MAP<DATE, ARRAY<BINARY>>, r STRUCT<one: STRUCT<two: MAP<STRING, DECIMAL(20,3)>>>"
    )
)

_DECIMAL = re.compile(r'"DECIMAL (-?[0-9.]+)"')


@pytest.fixture(scope="module")
def clients(cluster):
    """A producer of each kind, kept for all examples."""
    servers = cluster.bootstrap_servers
    with (
        Producer({"bootstrap.servers": servers, "compression.type": "zstd"}) as ours,
        Consumer({"bootstrap.servers": servers}) as consumer,
    ):
        foreign = ConfluentProducer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0})
        reader = ConfluentConsumer(
            {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
        )
        yield ours, consumer, foreign, reader
        reader.close()


def as_text(values: dict[str, Any], schema: TopicSchema) -> bytes:
    """A row as JSON, its decimals with all digits."""
    content = {c.name: plain_json(values[c.name], c.type) for c in schema.latest.visible}
    text = json.dumps(content, default=lambda value: f"DECIMAL {value:f}")
    return _DECIMAL.sub(r"\1", text).encode()


def check_rows_everywhere(cluster: Any, clients: Any, topic: str, schema: Any, rows: Any) -> None:
    config = {SCHEMA_SETTING: schema.to_json()}
    create_topic(cluster, topic, replication_factor=1, config=config)
    ours, consumer, foreign, reader = clients
    expected = rows.to_pylist()
    assert ours.send_table(topic, pa.Table.from_batches([rows])).result(60).rows == len(expected)
    failures: list[Any] = []
    for values in expected:
        foreign.produce(
            topic,
            as_text(values, schema),
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert foreign.flush(60) == 0 and not failures, failures
    twice = expected + expected
    check_columns(consumer, topic, schema, twice)
    check_json(reader, topic, schema, twice)
    check_files(cluster, topic, schema, twice)


def check_columns(consumer: Any, topic: str, schema: TopicSchema, expected: list[Any]) -> None:
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    consumer.seek_to_beginning()
    names = [column.name for column in schema.latest.visible]
    found: list[Any] = []

    def polled() -> bool:
        found.extend(consumer.poll_table(500, columns=["_offset", *names]).to_pylist())
        return len(found) >= len(expected)

    wait_until(polled, f"{len(expected)} rows of {topic}")
    assert [each.pop("_offset") for each in found] == list(range(len(expected)))
    assert comparable(found) == comparable(expected)


def check_json(reader: Any, topic: str, schema: TopicSchema, expected: list[Any]) -> None:
    reader.assign([ConfluentPartition(topic, 0, 0)])
    found: list[Any] = []

    def polled() -> bool:
        for message in reader.consume(1000, timeout=0.1):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.key(), parsed(message.value())))
        return len(found) >= len(expected)

    wait_until(polled, f"{len(expected)} records of {topic}")
    assert [offset for offset, _, _ in found] == list(range(len(expected)))
    for (_, key, content), values in zip(found, expected, strict=True):
        assert key is None
        columns = {c.name: plain_json(values[c.name], c.type) for c in schema.latest.visible}
        assert same(content, columns), (content, columns)


def check_files(cluster: Any, topic: str, schema: TopicSchema, expected: list[Any]) -> None:
    """The reader that the documentation shows gets the same out of the leader's files."""
    leader = cluster.state.broker(leader_of(admin(cluster), topic))
    folder: Path = cluster.directory / leader.data_dir / f"{topic}-0"
    log = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    read_column = documented_reader()
    for column in schema.latest.visible:
        found = read_column(log, column.column_id, arrow_type(column.type))
        for chunk in found.chunks:
            chunk.validate(full=True)
        assert comparable(found.to_pylist()) == comparable([each[column.name] for each in expected])


@settings(
    max_examples=FRAMES,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_rows_of_any_schema_are_equal_however_they_are_written_and_read(cluster, clients, data):
    schema = data.draw(schemas(most_columns=6))
    rows = data.draw(rows_of(schema, data.draw(st.sampled_from([30, 1, 0, 200]))))
    number = next(_numbers)
    check_rows_everywhere(cluster, clients, f"typed-any-{number}", schema, rows)


_numbers = iter(range(1 << 30))


@settings(
    max_examples=10 if ALL_FAULTS else 1,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_every_type_is_equal_however_it_is_written_and_read(cluster, clients, data):
    rows = data.draw(rows_of(EVERY_TYPE, 20))
    topic = f"typed-every-{next(_numbers)}"
    check_rows_everywhere(cluster, clients, topic, EVERY_TYPE, rows)


def test_decimals_keep_their_digits_in_the_json_of_this_test():
    schema = new_schema(parse_ddl("d DECIMAL(38,38)"))
    assert as_text({"d": Decimal("-0." + "7" * 38)}, schema) == b'{"d": -0.%s}' % (b"7" * 38)
