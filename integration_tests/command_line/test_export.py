"""R-CLI5 on a real broker: splits are read again as they were, and an export that is killed again
and again has in the end what a client that we did not write reads of the topic."""

import json
import pickle
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Message
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from integration_tests.forks.forked import popen, run
from integration_tests.support.cluster_support import (
    END_TOLD_MS,
    create_topic,
    running_cluster,
    wait_until,
)
from integration_tests.support.command_line import UNKNOWN_TOPIC_MS, giving_up_after
from storage_engine.client import Admin, BulkReader, ConfigError, RecordsGoneError, TopicPartition
from storage_engine.tests.sampling import ALL_FAULTS, SEED
from storage_engine.tools.cli import main
from storage_engine.tools.local.local_cluster import LocalCluster

PARTITIONS = 3
ROUNDS, EACH = 12, 100
KILLS = 12 if ALL_FAULTS else 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = (
        ("transaction.state.log.num.partitions", "1"),
        ("transaction.state.log.replication.factor", "1"),
    )
    with running_cluster(tmp_path_factory.mktemp("c"), brokers=1, settings=settings) as made:
        yield made


@pytest.fixture(scope="module")
def topic(cluster) -> str:
    """Every third transaction was aborted, and the last is open."""
    create_topic(
        cluster,
        "mixed",
        partitions=PARTITIONS,
        replication_factor=1,
        config={"retention.ms": "-1"},
    )
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "compression.type": "lz4",
        "log_level": 0,
    }
    producer = ConfluentProducer({**config, "transactional.id": "mixed", "linger.ms": 0})
    producer.init_transactions(60)
    for number in range(ROUNDS * EACH):
        if number % EACH == 0:
            producer.begin_transaction()
        producer.produce(
            "mixed",
            None if number % 11 == 0 else b"%d" % number,
            None if number % 3 else b"key",
            partition=number % PARTITIONS,
            timestamp=1000 * number + 1,
            headers=[("h", b"x"), ("h", None)] if number % 5 == 0 else None,
        )
        if number % EACH == EACH - 1 and number // EACH < ROUNDS - 1:
            if number // EACH % 3 == 1:
                producer.flush(60)
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
    assert producer.flush(60) == 0
    OPEN.append(producer)
    return "mixed"


OPEN: list[ConfluentProducer] = []
"""A producer that goes would abort."""

Row = tuple[Any, ...]


def as_others_read_it(cluster: LocalCluster, topic: str) -> list[Row]:
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": END_TOLD_MS,
        }
    )
    consumer.assign([ConfluentPartition(topic, n, 0) for n in range(PARTITIONS)])
    rows: list[Row] = []
    at_end: set[int] = set()

    def all_read() -> bool:
        while (message := consumer.poll(0.2)) is not None:
            if message.error():
                at_end.add(message.partition())
            else:
                rows.append(_row(message))
        return len(at_end) == PARTITIONS

    wait_until(all_read, "all partitions are read")
    consumer.close()
    return sorted(rows)


def _row(message: Message) -> Row:
    return (
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )


def rows_of(table: pa.Table) -> list[Row]:
    return sorted(
        (
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"] or ()),
            round(row["timestamp"].timestamp() * 1000),
        )
        for row in table.to_pylist()
    )


HEADRACE = [sys.executable, "-P", "-m", "storage_engine.tools.cli"]


def command(cluster: LocalCluster, *arguments: str) -> list[str]:
    return ["export", *arguments, "--bootstrap-server", cluster.bootstrap_servers, "--json"]


def test_an_export_killed_again_and_again_has_every_committed_record_once(cluster, topic, tmp_path):
    expected = as_others_read_it(cluster, topic)
    chance = random.Random(SEED)
    target = tmp_path / "out"
    arguments = command(cluster, topic, "--dir", str(target), "--split-offsets", "10")
    whole: dict[Path, bytes] = {}
    for kill in range(KILLS):
        killed_at = len(whole) + chance.randrange(1, 50 // KILLS)
        process = popen([*HEADRACE, *arguments])
        try:
            wait_for_files(target, killed_at)
            if kill % 4 == 3:
                cluster.kill_broker(1)
                cluster.start_broker(1)
                wait_for_files(target, killed_at + 5)
        finally:
            process.kill()
            process.wait()
        assert all(path.read_bytes() == before for path, before in whole.items())
        whole = {path: path.read_bytes() for path in files(target)}
    done = run([*HEADRACE, *arguments], text=True)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["kept"], outcome["records"]) == (len(whole), len(expected))
    assert outcome["written"] == outcome["splits"] - len(whole) > 0
    assert rows_of(ds.dataset(target, format="parquet").to_table()) == expected
    assert all(path.read_bytes() == before for path, before in whole.items())


def wait_for_files(target: Path, count: int) -> None:
    wait_until(lambda: len(files(target)) >= count, f"{count} files")


def files(target: Path) -> list[Path]:
    return list(target.glob("[0-9]*.parquet"))


def test_splits_are_read_by_anybody_and_again_and_may_begin_at_a_time(cluster, topic):
    expected = as_others_read_it(cluster, topic)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with BulkReader(servers) as reader:
        splits = reader.splits([topic], split_offsets=70)
    assert len(splits) > PARTITIONS
    assert max(map(len, splits)) <= 70
    with BulkReader({**servers, "fetch.max.bytes": 1000}) as other:
        for _ in range(2):
            batches = [b for split in pickle.loads(pickle.dumps(splits)) for b in other.read(split)]
            assert rows_of(pa.Table.from_batches(batches)) == expected
    with BulkReader({**servers, "isolation.level": "read_uncommitted"}) as all_of_it:
        batches = [b for s in all_of_it.splits([topic]) for b in all_of_it.read(s)]
        assert sum(batch.num_rows for batch in batches) == ROUNDS * EACH
        with pytest.raises(ConfigError, match=r"give \['mixed'\]"):
            all_of_it.splits(topic)


def test_splits_begin_and_end_at_a_time(cluster):
    create_topic(
        cluster, "timed", partitions=2, replication_factor=1, config={"retention.ms": "-1"}
    )
    producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(100):
        producer.produce("timed", b"x", partition=number % 2, timestamp=1000 + number)
    assert producer.flush(60) == 0
    with BulkReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:

        def times(**bounds: int) -> list[int]:
            splits = reader.splits(["timed"], split_offsets=7, **bounds)
            batches = [batch for split in splits for batch in reader.read(split)]
            return sorted(
                row[-1] for batch in batches for row in rows_of(pa.Table.from_batches([batch]))
            )

        assert times(since_ms=1030, until_ms=1061) == list(range(1030, 1061))
        assert times(until_ms=1004) == list(range(1000, 1004))
        assert times(since_ms=1099) == [1099]
        assert times(since_ms=1100) == times(since_ms=1050, until_ms=1050) == []


def test_a_split_whose_records_are_gone_is_no_short_split(cluster):
    create_topic(cluster, "going", replication_factor=1)
    producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for _ in range(10):
        producer.produce("going", b"x")
    assert producer.flush(60) == 0
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with (
        giving_up_after(unknown_topic_wait_ms=UNKNOWN_TOPIC_MS),
        BulkReader(servers) as reader,
        Admin(servers) as ours,
    ):
        first, second = reader.splits(["going"], split_offsets=5)
        ours.delete_records({TopicPartition("going", 0): 3})
        with pytest.raises(RecordsGoneError, match=r"going-0 from 0 to 5 are gone: .*3 to 10"):
            list(reader.read(first))
        assert sum(batch.num_rows for batch in reader.read(second)) == 5
        ours.delete_topics(["going"])
        with pytest.raises(RecordsGoneError, match=r"the topic was deleted$"):
            list(reader.read(second))
        create_topic(cluster, "going", replication_factor=1)
        with pytest.raises(RecordsGoneError, match="is another one now"):
            list(reader.read(second))


def test_what_can_not_be_exported_is_told_in_one_line(cluster, topic, tmp_path, capsys):
    with giving_up_after(unknown_topic_wait_ms=UNKNOWN_TOPIC_MS):
        assert main(command(cluster, "nowhere", "--dir", str(tmp_path / "a"))) == 1
    assert "topic 'nowhere' does not exist" in one_line(capsys)
    arguments = ["--dir", str(tmp_path / "b"), "--since", "2100-01-01"]
    assert main(command(cluster, topic, *arguments)) == 0
    assert json.loads(capsys.readouterr().out)["splits"] == 0
    assert main(command(cluster, topic, *arguments[:2])) == 1
    assert "has another export, of mixed since 4102444800000" in one_line(capsys)
    (tmp_path / "file").write_text("")
    assert main(command(cluster, topic, "--dir", str(tmp_path / "file"))) == 1
    assert str(tmp_path / "file") in one_line(capsys)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return str(line)
