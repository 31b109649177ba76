"""A sink that is not exactly once is found by the judgement that the soak and all cases share: the
sinks that the soak runs on with `--broken`, on a real broker, without Spark around them. Source:
R-SPARK2.
"""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from connector.connections import close_all
from connector.options.sink_options import SinkOptions, parse_sink_options
from connector.sink import record_writer
from connector.task_properties import BATCH_ID, DESCRIPTION, QUERY_ID
from integration_tests.exactly_once import broken_sinks
from integration_tests.exactly_once.broken_sinks import BROKEN
from integration_tests.exactly_once.committed_reader import CommittedReader, read_all
from integration_tests.exactly_once.exactly_once import judge
from integration_tests.exactly_once.sink_moments import MomentsWriter
from integration_tests.support.cluster_support import create_topic, running_cluster
from integration_tests.support.spark_support import description_of
from storage_engine.tools.local.local_cluster import LocalCluster

SETTINGS = (("transaction.state.log.num.partitions", "1"),)
TASKS = 2
TASK_IDS = 15
FOUND = {"early-ack": "30 ids lost", "replay-twice": "30 ids doubled", "retry-drops": "15 ids lost"}
"""What the judgement says of each."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=SETTINGS) as made:
        yield made
    close_all()


class Query:
    """What Spark does with a sink, in one process: batches of TASKS tasks of TASK_IDS ids."""

    def __init__(self, kind: type[MomentsWriter], options: SinkOptions, folder: Path) -> None:
        self._kind, self._options, self._folder = kind, options, folder
        self._name = str(uuid.uuid4())
        self.batch = 0
        self.attempt = 0
        self.driver = 1
        self.later: list[Callable[[], None]] = []
        """What the driver does in a while, if it lives."""

    def kill_the_driver(self) -> None:
        self.later.clear()
        self.driver += 1

    def run(self, batch: int, *, fails: bool = False) -> None:
        """To the answer of the commit. `fails`: the first attempt of the first task does."""
        self.batch = batch
        if fails:
            with pytest.raises(Exception, match="a task that fails"):
                self._task(0, fails=True)
        self.attempt = int(fails)
        messages: list[WriterCommitMessage | None] = [self._task(0)]
        self.attempt = 0
        messages += [self._task(number) for number in range(1, TASKS)]
        self.work()
        self._kind(self._options, self._folder).commit(messages, batch)

    def work(self) -> None:
        """Time passes."""
        for act in self.later:
            act()
        self.later.clear()

    def _task(self, number: int, *, fails: bool = False) -> WriterCommitMessage:
        first = (self.batch * TASKS + number) * TASK_IDS

        def rows() -> Iterator[pa.RecordBatch]:
            values = [f"{each}:row" for each in range(first, first + TASK_IDS)]
            yield pa.record_batch({"value": pa.array(values)})
            if fails:
                raise RuntimeError("a task that fails")

        return self._kind(self._options, self._folder).write(rows())

    # --- as a TaskContext ---

    def getLocalProperty(self, name: str) -> str:
        run = str(uuid.UUID(int=self.driver))
        described = description_of(self._name, run, self.batch)
        return {QUERY_ID: self._name, BATCH_ID: str(self.batch), DESCRIPTION: described}[name]

    def attemptNumber(self) -> int:
        return self.attempt


def complaints(kind, cluster, folder, monkeypatch) -> list[str]:
    """Of a run with a task that is tried again, a replay, and a driver that dies after a commit."""
    topic = f"t-{uuid.uuid4().hex[:8]}"
    servers = cluster.bootstrap_servers
    create_topic(cluster, topic, replication_factor=1)
    options = parse_sink_options({"bootstrap.servers": servers, "topic": topic, "sinkId": topic})
    query = Query(kind, options, folder)
    monkeypatch.setattr(record_writer, "GATHER_ROWS", record_writer.GATHER_ROWS)
    monkeypatch.setattr(TaskContext, "get", classmethod(lambda _: query))
    monkeypatch.setattr(broken_sinks, "incarnation", lambda: query.driver)
    monkeypatch.setattr(broken_sinks, "later", query.later.append)
    with CommittedReader(servers, topic, 1) as reader:
        query.run(0)
        query.run(1, fails=True)
        query.work()
        # Spark has not noted that it is committed.
        query.kill_the_driver()
        query.run(1)
        query.run(2)
        # Spark has noted it.
        query.kill_the_driver()
        query.run(3)
        query.work()
        reader.wait_until_stable()
    found = read_all(servers, topic, 1)
    return judge(found, reader.watched, range(4 * TASKS * TASK_IDS))


def test_the_users_sink_is_not_complained_about(cluster, tmp_path, monkeypatch):
    assert complaints(MomentsWriter, cluster, tmp_path, monkeypatch) == []


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_sink_is_found(cluster, tmp_path, monkeypatch, name):
    told = complaints(BROKEN[name], cluster, tmp_path, monkeypatch)
    assert any(each.startswith(FOUND[name]) for each in told), told
