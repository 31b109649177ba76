"""Named batch writes with real brokers and without Spark around them: jobs of different numbers at
the same time, in every order, with coordinators and drivers that are killed. Source: R-SPARK2."""

import logging
import signal
import sys
import threading
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext

from connector.connections import close_all
from connector.errors import ConnectorError
from connector.options.sink_options import parse_sink_options
from connector.sink.writers import HeadraceBatchWriter, HeadraceStreamWriter
from connector.task_properties import (
    APPLICATION,
    BATCH_ID,
    DESCRIPTION,
    QUERY_ID,
    ROOT_EXECUTION,
)
from integration_tests.forks.forked import run
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
)
from integration_tests.support.spark_support import consume, description_of
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.sampling import ALL_FAULTS, in_full
from storage_engine.tools.local.local_cluster import LocalCluster

ROUNDS = 20 if ALL_FAULTS else 1
ROWS = 10
STATE = "__transaction_state"
WAIT_S = 180


@pytest.fixture(scope="module")
def spark_cluster(cluster) -> Iterator[LocalCluster]:
    yield cluster
    close_all()


class Job:
    """One `df.write` of one task."""

    def __init__(
        self, servers: str, topic: str, number: int, *, sink: str | None = None, **more: str
    ) -> None:
        named = {"sinkId": sink or topic, "batchId": str(number)} | more
        self._writer = HeadraceBatchWriter(
            parse_sink_options({"bootstrap.servers": servers, "topic": topic} | named)
        )
        self._number = number
        self._messages: list = []

    def work(self, value: str | None = None, rows: int = ROWS) -> "Job":
        values = pa.array([value or str(self._number)] * rows, pa.string())
        batch = pa.record_batch({"value": values})
        self._messages.append(self._writer.write(iter([batch])))
        return self

    def commit(self) -> None:
        self._writer.commit(self._messages)

    def abort(self) -> None:
        self._writer.abort(self._messages)


def read(servers: str, topic: str) -> dict[str, int]:
    """How often each value is read."""
    values = [(each.value() or b"").decode() for each in consume(servers, topic)]
    return {value: values.count(value) for value in values}


def warnings(caplog) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("order", [(5, 6), (6, 5)])
def test_jobs_of_two_numbers_at_once_both_count(spark_cluster, servers, topic, order, caplog):
    create_topic(spark_cluster, topic, replication_factor=1)
    for each_round in range(ROUNDS):
        sink = f"{topic}-{each_round}"
        jobs = {number: Job(servers, topic, number, sink=sink) for number in order}
        tasks = [threading.Thread(target=job.work) for job in jobs.values()]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join(WAIT_S)
        for number in order:
            jobs[number].commit()
        Job(servers, topic, 3, sink=sink).work().commit()
    assert read(servers, topic) == dict.fromkeys("356", ROUNDS * ROWS)
    assert not warnings(caplog)
    Job(servers, topic, 6, sink=f"{topic}-0").work("again", rows=ROWS + 1).commit()
    assert read(servers, topic) == dict.fromkeys("356", ROUNDS * ROWS)
    name = f"batchId 6 of sink '{topic}-0', part '{topic}'"
    assert warnings(caplog) == [
        f"{name} is committed already: a task has dropped its {ROWS + 1} rows",
        f"{name}: {ROWS + 1} rows dropped, it is committed already",
        f"{name}: this replay has {ROWS + 1} rows, the committed batch has {ROWS}; "
        "readers see only the latter",
    ]


@pytest.mark.parametrize("order", [pytest.param((5, 6), marks=in_full), (6, 5)])
def test_a_coordinator_killed_between_two_commits_loses_neither(
    spark_cluster, servers, topic, order
):
    create_topic(spark_cluster, topic, replication_factor=3)
    brokers = admin(spark_cluster)
    jobs = {number: Job(servers, topic, number).work() for number in order}
    first, second = order
    jobs[first].commit()
    killed = leader_of(brokers, STATE, state_partition(topic, COORDINATOR_PARTITIONS))
    spark_cluster.kill_broker(killed)
    jobs[second].commit()
    Job(servers, topic, first).work("again").commit()
    spark_cluster.start_broker(killed)
    wait_for_isr(brokers, topic, 3)
    for partition in range(COORDINATOR_PARTITIONS):
        wait_for_isr(brokers, STATE, 3, partition)
    assert read(servers, topic) == dict.fromkeys("56", ROWS)


KILLED_DRIVER = """
import os, signal, sys
from integration_tests.transactions.test_named_writes_count_each_number import Job
servers, topic, moment = sys.argv[1:]
job = Job(servers, topic, 5).work("killed")
if moment == "after":
    job.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("moment", "kept"), [("before", "repeated"), ("after", "killed")])
def test_a_job_whose_driver_was_killed_is_repeated(spark_cluster, servers, topic, moment, kept):
    """Before or after its commit took effect; a job of another number goes on meanwhile."""
    create_topic(spark_cluster, topic, replication_factor=1)
    other = Job(servers, topic, 6).work()
    command = [sys.executable, "-c", KILLED_DRIVER, servers, topic, moment]
    died = run(command, timeout=WAIT_S)
    assert died.returncode == -signal.SIGKILL
    other.commit()
    Job(servers, topic, 5).work("repeated").commit()
    assert read(servers, topic) == {"6": ROWS, kept: ROWS}


def test_two_topics_take_the_same_number_of_one_sink(spark_cluster, servers, topic):
    topics = [topic, f"{topic}-2"]
    for each in topics:
        create_topic(spark_cluster, each, replication_factor=1)
        Job(servers, each, 5, sink="both").work().commit()
    assert [read(servers, each) for each in topics] == [{"5": ROWS}] * 2


class Query:
    """A streaming query, as its tasks see it; a new checkpoint makes another query."""

    def __init__(self, monkeypatch) -> None:
        self.id, self.run = str(uuid.uuid4()), str(uuid.uuid4())
        self.batch = 0
        self._monkeypatch = monkeypatch

    def is_at_work(self) -> None:
        """From now on its tasks run."""
        self._monkeypatch.setattr(TaskContext, "get", classmethod(lambda _: self))

    def restart(self) -> "Query":
        """Another run on the same checkpoint."""
        again = Query(self._monkeypatch)
        again.id, again.batch = self.id, self.batch
        return again

    def getLocalProperty(self, name: str) -> str | None:
        described = description_of(self.id, self.run, self.batch)
        told = {
            QUERY_ID: self.id,
            BATCH_ID: str(self.batch),
            DESCRIPTION: described,
            ROOT_EXECUTION: f"{self.run} {self.batch}",
        }
        return "an application" if name in APPLICATION else told.get(name)


def test_a_new_checkpoint_that_counts_the_same_numbers_is_an_error(
    spark_cluster, servers, topic, monkeypatch
):
    create_topic(spark_cluster, topic, replication_factor=1)
    first, second = Query(monkeypatch), Query(monkeypatch)
    first.is_at_work()
    Job(servers, topic, 0).work("first").commit()
    first.batch = 1
    opened = Job(servers, topic, 1).work("first")
    second.is_at_work()
    with pytest.raises(ConnectorError, match=r"^\[BATCH_ID_TAKEN\] ") as told:
        Job(servers, topic, 0).work("second")
    assert f"batchId 0 of part '{topic}', committed by the query {first.id}:" in str(told.value)
    # Also where both have written before one commits.
    later = Job(servers, topic, 1).work("second")
    opened.commit()
    with pytest.raises(ConnectorError, match=r"^\[BATCH_ID_TAKEN\] "):
        later.commit()
    restarted = first.restart()
    restarted.is_at_work()
    Job(servers, topic, 1).work("replayed").commit()
    restarted.batch = 2
    Job(servers, topic, 2).work("first").commit()
    assert read(servers, topic) == {"first": 3 * ROWS}


def test_a_number_that_is_taken_is_told_with_what_can_be_done(
    spark_cluster, servers, topic, monkeypatch
):
    """A job of no query has no checkpoint to go on with, and a query takes Spark's numbers."""
    create_topic(spark_cluster, topic, replication_factor=1)
    Job(servers, topic, 0).work("job").commit()
    query = Query(monkeypatch)
    query.is_at_work()
    Job(servers, topic, 1).work("query").commit()
    with pytest.raises(ConnectorError) as told:
        Job(servers, topic, 0).work("query")
    assert str(told.value).endswith(
        "committed by a job that is part of no query: write under another sinkId or sinkPart"
    )
    monkeypatch.undo()
    with pytest.raises(ConnectorError) as told:
        Job(servers, topic, 1).work("job")
    assert str(told.value).endswith(
        f"committed by the query {query.id}: take another batchId, or write under another sinkId "
        "or sinkPart"
    )
    assert read(servers, topic) == {"job": ROWS, "query": ROWS}


def test_a_zombie_of_a_query_is_told_that_it_is_one(spark_cluster, servers, topic, monkeypatch):
    create_topic(spark_cluster, topic, replication_factor=1)
    options = parse_sink_options({"bootstrap.servers": servers, "topic": topic, "sinkId": topic})
    writer = HeadraceStreamWriter(options)

    def work(value: str):
        return writer.write(iter([pa.record_batch({"value": pa.array([value] * ROWS)})]))

    zombie = Query(monkeypatch)
    zombie.is_at_work()
    writer.commit([work("zombie")], 0)
    zombie.batch = 1
    held = work("lost")
    restarted = zombie.restart()
    restarted.is_at_work()
    replayed = work("restarted")
    with pytest.raises(ConnectorError, match=r"^\[RUN_REPLACED\] .*a newer run of the same query"):
        writer.commit([held], 1)
    writer.commit([replayed], 1)
    zombie.is_at_work()
    with pytest.raises(ConnectorError, match=r"^\[RUN_REPLACED\] "):
        work("lost")
    for batch in (2, 3):
        another = restarted.restart()
        another.batch = batch
        another.is_at_work()
        writer.commit([work("restarted")], batch)
    assert read(servers, topic) == {"zombie": ROWS, "restarted": 3 * ROWS}
