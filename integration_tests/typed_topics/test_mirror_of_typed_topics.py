"""`headrace mirror` on topics with a schema, between real clusters: columns stay columns, and are
JSON records where the target has no schema. Both sides are read by confluent-kafka. Source: R-CLI6.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer as ForeignProducer

from integration_tests.command_line.killed_mirror import MOMENTS, run_and_kill
from integration_tests.command_line.mirrored import Seen, committed_records
from integration_tests.support.cluster_support import running_cluster, wait_until
from storage_engine.client import Admin, Producer
from storage_engine.client.admin.record_deletion import delete_records
from storage_engine.client.admin.topics import NewTopic
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.core.ids import TopicPartition
from storage_engine.mirror.mirror import Mirror, MirrorConfig
from storage_engine.mirror.plan import TopicSelection
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.protocol.typed.directory import OFFSETS
from storage_engine.protocol.typed.projection import WANT_STORED, TypedWant
from storage_engine.protocol.typed.typed_batch import directory_of, is_typed
from storage_engine.tests.client.fetching.ranges import read_range
from storage_engine.tests.sampling import ALL_FAULTS, in_full
from storage_engine.tools.cli import main

DDL = "id BIGINT NOT NULL, name STRING, size INT"
LATER_DDL = "id BIGINT NOT NULL, name STRING, size BIGINT, extra DOUBLE"


class Pair(NamedTuple):
    """Bootstrap servers of two clusters, each of one broker."""

    source: str
    target: str


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Iterator[Pair]:
    settings = (
        ("transaction.state.log.num.partitions", "2"),
        ("log.cleaner.backoff.ms", "200"),
    )
    folder = tmp_path_factory.mktemp("clusters")
    with (
        running_cluster(folder / "source", brokers=1, settings=settings) as source,
        running_cluster(folder / "target", brokers=1, settings=settings) as target,
    ):
        yield Pair(source.bootstrap_servers, target.bootstrap_servers)


def make_typed(servers: str, topic: str, schema: str = DDL, **configs: str) -> None:
    with Admin({"bootstrap.servers": servers}) as admin:
        new = NewTopic(name=topic, partitions=1, replication_factor=1, configs=configs)
        admin.create_topics([new], schema=schema, key=["id"])


def write_rows(servers: str, topic: str, ids: range, **more) -> None:
    columns = {
        "id": pa.array(ids, pa.int64()),
        "name": pa.array([f"name {number}" for number in ids]),
        "size": pa.array([number % 100 for number in ids], pa.int32()),
    }
    with Producer({"bootstrap.servers": servers, **more}) as producer:
        producer.send_table(topic, pa.table(columns)).result(60)


def write_in_transactions(servers: str, topic: str) -> None:
    """JSON records of another client; of every second transaction nothing is seen."""
    producer = ForeignProducer(
        {"bootstrap.servers": servers, "transactional.id": f"filler-{topic}", "log_level": 0}
    )
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        for row in range(5):
            fields = {"id": 5000 + 10 * number + row, "name": None, "size": row}
            producer.produce(topic, json.dumps(fields).encode(), headers=[("n", b"%d" % number)])
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def content_of(servers: str, topic: str) -> list[Seen]:
    return [seen for _, seen in committed_records(servers, topic, 0)]


def copy(pair: Pair, topic: str, capsys, *more: str) -> str:
    command = ["mirror", "--source", pair.source, "--target", pair.target, "--topics", topic]
    assert main([*command, "--name", topic, "--exit-at-end", "--json", *more]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[-1])["lag"] == 0
    return str(told.err)


def stored_batches(servers: str, topic: str):
    """Header and directory of each typed batch as it is stored; None for others with records."""
    found = []
    tp = TopicPartition(topic, 0)
    with Cluster(servers) as cluster:
        start, end = (cluster.list_offsets({tp: when})[tp] for when in (EARLIEST, LATEST))
        for fetched in read_range(cluster, tp, start, end, typed_want=TypedWant(WANT_STORED)):
            for position, header in iter_headers(fetched.records):
                batch = fetched.records[position : position + header.size_in_bytes]
                if is_typed(header):
                    found.append((header, directory_of(header, batch)))
                elif header.records_count and not header.is_control:
                    found.append((header, None))
    return found


def test_typed_topics_are_copied_as_columns_with_every_version_of_their_schema(pair, capsys):
    topic = "trips"
    make_typed(pair.source, topic)
    write_rows(pair.source, topic, range(3000), **{"compression.type": "zstd"})
    write_in_transactions(pair.source, topic)
    assert copy(pair, topic, capsys) == ""
    with Admin({"bootstrap.servers": pair.source}) as source:
        source.alter_schema(topic, LATER_DDL)
    write_rows(pair.source, topic, range(3000, 3100))
    assert copy(pair, topic, capsys) == ""
    seen = content_of(pair.target, topic)
    assert len(seen) == 3110
    assert seen == content_of(pair.source, topic)
    stored = stored_batches(pair.target, topic)
    with (
        Admin({"bootstrap.servers": pair.source}) as source,
        Admin({"bootstrap.servers": pair.target}) as target,
    ):
        theirs = source.describe_schemas([topic])[topic]
        ours = target.describe_schemas([topic])[topic]
    assert ours.schema == theirs.schema and ours.topic_id != theirs.topic_id
    assert {directory.topic_id for _, directory in stored} == {ours.topic_id}
    assert {directory.schema_version for _, directory in stored} == {1, 2}


def test_a_version_that_comes_while_the_mirror_runs_is_there_before_its_batches(pair):
    topic = "altered"
    make_typed(pair.source, topic)
    write_rows(pair.source, topic, range(10))
    config = MirrorConfig(
        name=topic, selection=TopicSelection(include=re.compile(topic)), commit_interval_ms=100
    )
    with contextlib.ExitStack() as stack:
        target, source = (stack.enter_context(Cluster(servers)) for servers in reversed(pair))
        mirror = stack.enter_context(Mirror(target, {"source": source}, config, print))
        mirror.start()
        # It does not look for news of topics from here on.
        mirror._refreshed_ms += 3_600_000
        for number, ddl in enumerate((DDL, LATER_DDL, LATER_DDL + ", more STRING")):
            with Admin({"bootstrap.servers": pair.source}) as admin:
                admin.alter_schema(topic, ddl)
            write_rows(pair.source, topic, range(10 * number, 10 * number + 10))
            ends = mirror.ends()
            while not mirror.reaches(ends):
                mirror.step(100)
    assert len(content_of(pair.target, topic)) == 40
    assert content_of(pair.target, topic) == content_of(pair.source, topic)


def test_rows_become_json_records_where_the_target_has_no_schema(pair, capsys):
    topic = "plain"
    make_typed(pair.source, topic)
    write_rows(pair.source, topic, range(100))
    with Admin({"bootstrap.servers": pair.target}) as admin:
        admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
    told = copy(pair, topic, capsys)
    assert "'plain' of the target has none: rows become JSON records" in told
    seen = content_of(pair.target, topic)
    assert json.loads(seen[7].value or b"") == {"id": 7, "name": "name 7", "size": 7}
    assert seen == content_of(pair.source, topic)
    assert {directory for _, directory in stored_batches(pair.target, topic)} == {None}


CASES = [(kind, moment) for kind in ("columns", "records") for moment in MOMENTS]


@pytest.mark.parametrize(
    ("kind", "moment"),
    # By default the worst: a commit of which the mirror does not learn.
    [pytest.param(*case, marks=[] if case == ("columns", "ended") else in_full) for case in CASES],
)
def test_a_mirror_of_rows_that_is_killed_leaves_none_out_and_copies_none_twice(
    pair, capsys, kind, moment
):
    topic = f"killed-{kind}-{moment}"
    make_typed(pair.source, topic)
    if kind == "records":
        with Admin({"bootstrap.servers": pair.target}) as admin:
            admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
    command = ["mirror", "--source", pair.source, "--target", pair.target, "--topics", topic]
    command += ["--name", topic, "--exit-at-end"]
    for number in range(3 if ALL_FAULTS else 1):
        for first in range(3):
            start = 300 * number + 100 * first
            write_rows(pair.source, topic, range(start, start + 100))
        write_in_transactions(pair.source, topic)
        # A batch at a time, and a commit after it.
        run_and_kill(moment, 1 if moment == "started" else 2, 1, 1, command)
    copy(pair, topic, capsys)
    seen = content_of(pair.target, topic)
    assert len(seen) == 310 * (3 if ALL_FAULTS else 1)
    assert seen == content_of(pair.source, topic)
    stored = [directory is not None for _, directory in stored_batches(pair.target, topic)]
    assert set(stored) == {kind == "columns"}


def test_a_topic_with_another_schema_is_not_written_to(pair, capsys):
    topic = "other"
    make_typed(pair.source, topic)
    make_typed(pair.target, topic, "id BIGINT NOT NULL, name BINARY")
    command = ["mirror", "--source", pair.source, "--target", pair.target, "--topics", topic]
    assert main([*command, "--name", topic, "--exit-at-end"]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "topic 'other' of the target has another schema than 'other' of source" in told


def test_rows_with_gaps_between_them_are_copied_without(pair, capsys):
    """The source is compacted, and its first batch was begun before the log's start."""
    topic = "gaps"
    configs = {"cleanup.policy": "compact,delete", "segment.bytes": "20000"}
    make_typed(pair.source, topic, **configs, **{"min.cleanable.dirty.ratio": "0.01"})
    write_rows(pair.source, topic, range(200))
    for _ in range(20):
        write_rows(pair.source, topic, range(0, 200, 3))
    with Cluster(pair.source) as source:
        delete_records(source, {TopicPartition(topic, 0): 50})

    def is_compacted() -> bool:
        stored = stored_batches(pair.source, topic)
        return any(directory.column(OFFSETS) is not None for _, directory in stored)

    wait_until(is_compacted, "the source is compacted")
    copy(pair, topic, capsys)
    newest = {seen.key: seen for seen in content_of(pair.target, topic)}
    assert newest == {seen.key: seen for seen in content_of(pair.source, topic)}
    assert len(newest) == 200 - len([number for number in range(50) if number % 3])
    assert not any(each.column(OFFSETS) for _, each in stored_batches(pair.target, topic))
