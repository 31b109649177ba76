"""A replica moves between two log dirs of a real broker under load, also when the broker is
killed on the way; every acknowledged record is there, once (KIP-113)."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient
from kafka.errors import NoError

from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from integration_tests.support.loop_disk import start_with_log_dirs
from storage_engine.client import Admin, BulkReader, NewTopic
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main
from storage_engine.tools.local.local_cluster import LocalCluster

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def log_dirs_of(cluster: LocalCluster) -> tuple[Path, Path]:
    (broker,) = cluster.state.brokers
    return cluster.directory / broker.data_dir, cluster.directory / "second"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("log dirs")
    with running_cluster(directory, brokers=1) as running:
        running.stop_broker(1)
        start_with_log_dirs(running, 1, *log_dirs_of(running))
        yield running


class Load:
    """Records one after the other, by an idempotent producer; what was acknowledged."""

    def __init__(self, cluster: LocalCluster, topic: str, value_of: Callable[[int], bytes]) -> None:
        self._value_of = value_of
        self.acknowledged: set[int] = set()
        self.failures: list[str] = []
        self.sent = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                # What piles up while the broker is away must fit a segment.
                "batch.size": 100_000,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        while not self._stop.wait(0.0005):
            number = self.sent

            def delivered(error: object, _message: object, number: int = number) -> None:
                if error is None:
                    self.acknowledged.add(number)
                else:
                    self.failures.append(f"{number}: {error}")

            value = self._value_of(number)
            self._producer.produce(self._topic, value, partition=0, on_delivery=delivered)
            self.sent += 1
            self._producer.poll(0)


def record(number: int) -> bytes:
    return b"%d-" % number + bytes(500)


def row(number: int) -> bytes:
    """Of which the leader makes columns; all differ, so that they take their place."""
    return b'{"id": %d, "pad": "%s"}' % (number, (b"%010d" % number) * 50)


def number_in(value: bytes) -> int:
    if value.startswith(b"{"):
        fields = json.loads(value)
        assert fields["pad"] == f"{fields['id']:010d}" * 50
        return int(fields["id"])
    return int(value.split(b"-")[0])


def read_columns(cluster: LocalCluster, topic: str) -> list[int]:
    with BulkReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:
        splits = reader.splits([topic])
        found = [batch for split in splits for batch in reader.read(split, columns=["id"])]
    return [number for batch in found for number in batch.column("id").to_pylist()]


def read(cluster: LocalCluster, topic: str) -> list[int]:
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    try:
        here = TopicPartition(topic, 0, 0)
        _, end = reader.get_watermark_offsets(here, timeout=30)
        reader.assign([here])
        found: list[int] = []
        while len(found) < end:
            messages = reader.consume(end - len(found), 20)
            assert messages
            found += [number_in(message.value() or b"") for message in messages]
        return found
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("killed", "is_typed"),
    [
        pytest.param(False, False, marks=in_full),
        (True, False),
        pytest.param(True, True, marks=in_full),
    ],
)
def test_every_acknowledged_record_is_in_the_other_log_dir_once(
    cluster, tmp_path: Path, capsys, killed, is_typed
):
    topic = f"moving-{killed}-{is_typed}"
    config = {"segment.bytes": "300000"}
    if is_typed:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            new = NewTopic(name=topic, partitions=1, replication_factor=1, configs=config)
            admin.create_topics([new], schema="id BIGINT NOT NULL, pad STRING")
    else:
        create_topic(cluster, topic, replication_factor=1, config=config)
    log_dirs = log_dirs_of(cluster)
    here = wait_until(
        lambda: next((log_dir for log_dir in log_dirs if (log_dir / f"{topic}-0").exists()), None),
        "the replica",
    )
    assert here is not None
    target = next(log_dir for log_dir in log_dirs if log_dir != here)
    plan = tmp_path / "plan.json"
    item = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [str(target)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [item]}))
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    files = ["--reassignment-json-file", str(plan)]
    with (
        Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
        Load(cluster, topic, row if is_typed else record) as load,
    ):
        # So much that the move is not over before it is looked at.
        begun = 10_000 if is_typed else 2000
        wait_until(lambda: len(load.acknowledged) > begun, "the load to begin")
        admin.alter_broker_configs(1, {RATE: "500000"})
        assert main(["reassign", "execute", *servers, *files]) == 0
        wait_until(
            lambda: any(r.is_future for f in admin.describe_log_dirs()[1] for r in f.replicas),
            "a copy",
        )
        capsys.readouterr()
        assert main(["reassign", "verify", *servers, *files, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["state"] == "in progress"
        if killed:
            cluster.kill_broker(1)
            start_with_log_dirs(cluster, 1, *log_dirs)
        admin.alter_broker_configs(1, {}, remove=[RATE])
        wait_until(lambda: (target / f"{topic}-0").exists(), "the move to end")
        seen = len(load.acknowledged)
        wait_until(lambda: len(load.acknowledged) > seen + 200, "the load to go on")
    assert main(["reassign", "verify", *servers, *files]) == 0
    assert not [path for path in here.iterdir() if path.name == f"{topic}-0"]
    assert not load.failures
    assert load.acknowledged == set(range(load.sent))
    assert read(cluster, topic) == list(range(load.sent))
    if is_typed:
        assert read_columns(cluster, topic) == list(range(load.sent))
    # Back again, as another client asks for it.
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    (code,) = client.alter_replica_log_dirs({(topic, 0, 1): str(here)}).values()
    assert code is NoError
    client.close()
    wait_until(lambda: (here / f"{topic}-0").exists(), "the move back")
    assert read(cluster, topic) == list(range(load.sent))
