"""An instance keeps to its memory, whatever topics hold and however much waits for it."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from integration_tests.lake.lakes import TABLE, LakeUnderFire, lakes, rows_in
from integration_tests.support.cluster_support import create_topic
from storage_engine.client import Producer
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, new_schema
from storage_engine.tests.sampling import in_full

LIMIT_MIB = 512
DEADLINE_S = 300

WIDE = [f"c{number} STRUCT<a: ARRAY<STRING>, b: MAP<STRING, BIGINT>>" for number in range(50)]
NESTED = pa.struct([("a", pa.list_(pa.string())), ("b", pa.map_(pa.string(), pa.int64()))])


def peak_mib(lake: LakeUnderFire) -> float:
    for line in Path(f"/proc/{lake.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the system does not tell the memory of processes")


def peak_of(lake: LakeUnderFire, counts: dict[str, int]) -> float:
    """The most memory of an instance until these tables have so many rows."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        peak = peak_mib(lake)
        missing = {
            topic: count for topic, count in counts.items() if rows_in(lake.root / topic) < count
        }
        if not missing:
            return peak
        assert time.monotonic() < deadline, f"not written: {missing}; {lake.told()[-2000:]}"
        time.sleep(0.2)


def test_rows_of_a_megabyte_fit_into_the_memory(cluster, tmp_path, topic):
    settings = {**TABLE, "headrace.table.commit.interval.ms": "2000"}
    create_topic(cluster, topic, partitions=2, config=settings)
    value = bytes(1_000_000)
    count = 300
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.type": "lz4"}) as p:
        for number in range(count):
            p.send(topic, value, partition=number % 2)
    with lakes(cluster, tmp_path, topic) as (lake,):
        assert peak_of(lake, {topic: count}) <= LIMIT_MIB


@in_full
def test_wide_nested_rows_fit_into_the_memory(cluster, tmp_path, topic):
    schema = new_schema(parse_ddl(", ".join(WIDE))).to_json()
    create_topic(cluster, topic, partitions=2, config={**TABLE, SCHEMA_SETTING: schema})
    column = pa.array([{"a": ["x" * 50] * 10, "b": [("k" * 20, 1)] * 5}] * 500, NESTED)
    rows = pa.table({f"c{number}": column for number in range(50)})
    pieces = 40
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for _ in range(pieces):
            producer.send_table(topic, rows)
            producer.flush()
    with lakes(cluster, tmp_path, topic) as (lake,):
        assert peak_of(lake, {topic: pieces * 500}) <= LIMIT_MIB


@in_full
@pytest.mark.parametrize("count", [100])
def test_many_topics_fit_into_the_memory(cluster, tmp_path, topic, count):
    names = [f"{topic}-{number}" for number in range(count)]
    values = pa.table({"value": pa.array([bytes(100)] * 20_000)})
    for name in names:
        create_topic(cluster, name, partitions=1, config=TABLE)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for name in names:
            producer.send_table(name, values)
    with lakes(cluster, tmp_path, topic) as (lake,):
        assert peak_of(lake, dict.fromkeys(names, 20_000)) <= LIMIT_MIB
