"""A streaming query whose `sinkId` is added, changed or removed at a restart: a micro-batch that
may be committed under the former one is not written again. With real brokers, without Spark around
them. Source: R-SPARK2."""

import os
import signal
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from connector.connections import close_all
from connector.errors import ConnectorError
from connector.options.sink_options import parse_sink_options
from connector.sink.writers import HeadraceStreamWriter
from integration_tests.forks.forked import run
from integration_tests.support.cluster_support import create_topic
from integration_tests.transactions.test_named_writes_count_each_number import (
    ROWS,
    WAIT_S,
    Query,
    read,
)
from storage_engine.tests.sampling import by_turns
from storage_engine.tools.local.local_cluster import LocalCluster


@pytest.fixture(scope="module")
def spark_cluster(cluster) -> Iterator[LocalCluster]:
    yield cluster
    close_all()


def write(servers: str, topic: str, batch: int, value: str, sink: str) -> None:
    """A micro-batch of one task, under that sinkId; none where it is empty. Spark has it aborted
    when the commit fails."""
    named = {"sinkId": sink} if sink else {}
    options = {"bootstrap.servers": servers, "topic": topic} | named
    writer = HeadraceStreamWriter(parse_sink_options(options, is_stream=True))
    rows = pa.record_batch({"value": pa.array([value] * ROWS)})
    written = [writer.write(iter([rows]))]
    try:
        writer.commit(written, batch)
    except ConnectorError:
        writer.abort(written, batch)
        raise


KILLED_DRIVER = """
import os, signal, sys
import pytest
from integration_tests.transactions.test_named_writes_count_each_number import Query
from integration_tests.transactions.test_sinks_that_change_at_a_restart import killed
killed(*sys.argv[1:])
"""


def killed(servers: str, topic: str, query: str, batch: str, sink: str) -> None:
    """Writes the micro-batch and is killed before it hears that it is committed."""
    with pytest.MonkeyPatch.context() as patch:
        found = Query(patch)
        found.id, found.batch = query, int(batch)
        found.is_at_work()
        write(servers, topic, int(batch), "killed", sink)
        os.kill(os.getpid(), signal.SIGKILL)


CHANGES = [("", "s"), ("s", ""), ("s", "t")]


@pytest.mark.parametrize(("change", "batch"), by_turns(CHANGES, [0, 1]))
def test_a_micro_batch_of_a_killed_driver_is_not_written_under_another_sink(
    spark_cluster, servers, topic, monkeypatch, change, batch
):
    before, after = change
    create_topic(spark_cluster, topic, replication_factor=1)
    sinks = {name: f"{name}-{topic}" if name else "" for name in ("", "s", "t")}
    query = Query(monkeypatch)
    query.is_at_work()
    expected = {"killed": ROWS}
    if batch:
        write(servers, topic, 0, "first", sinks[before])
        expected["first"] = ROWS
    command = [
        *(sys.executable, "-c", KILLED_DRIVER, servers, topic),
        *(query.id, str(batch), sinks[before]),
    ]
    assert run(command, timeout=WAIT_S).returncode == -signal.SIGKILL

    again = query.restart()
    again.batch = batch
    again.is_at_work()
    said = f"with sinkId '{sinks[before]}'" if before else "without sinkId"
    with pytest.raises(
        ConnectorError, match=rf"^\[BATCH_ID_TAKEN\] .*: restart the query {said}, "
    ):
        write(servers, topic, batch, "twice", sinks[after])
    assert read(servers, topic) == expected

    back = query.restart()
    back.batch = batch
    back.is_at_work()
    write(servers, topic, batch, "replayed", sinks[before])
    back.batch = batch + 1
    write(servers, topic, batch + 1, "next", sinks[after])
    assert read(servers, topic) == expected | {"next": ROWS}


def test_a_checkpoint_that_was_put_back_goes_on_under_its_sink(
    spark_cluster, servers, topic, monkeypatch
):
    create_topic(spark_cluster, topic, replication_factor=1)
    query = Query(monkeypatch)
    for batch in (0, 1, 2, 0, 1, 2, 3):
        if not batch:
            query = query.restart()
            query.is_at_work()
        query.batch = batch
        write(servers, topic, batch, str(batch), topic)
    assert read(servers, topic) == dict.fromkeys("0123", ROWS)
