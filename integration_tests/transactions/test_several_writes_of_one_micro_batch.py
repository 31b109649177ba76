"""Several named writes of one micro-batch with real brokers and without Spark around them: names
that are used twice, coordinators that are killed between two writes, names that change at a
restart. Source: R-SPARK2."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from connector.connections import close_all
from connector.errors import ConnectorError
from connector.options.sink_options import parse_sink_options
from connector.sink.writers import HeadraceBatchWriter
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    admin,
    create_topic,
    leader_of,
    make_whole,
    wait_for_isr,
)
from integration_tests.transactions.test_named_writes_count_each_number import (
    ROWS,
    STATE,
    Job,
    Query,
    read,
)
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tools.local.local_cluster import LocalCluster

SECOND = r"^\[BATCH_ID_TAKEN\] .*a second write under one name in micro-batch 0"


@pytest.fixture(scope="module")
def spark_cluster(cluster) -> Iterator[LocalCluster]:
    yield cluster
    close_all()


@pytest.fixture
def query(monkeypatch) -> Query:
    found = Query(monkeypatch)
    found.is_at_work()
    return found


def test_a_coordinator_killed_between_two_writes_confuses_none(
    spark_cluster, servers, topic, query
):
    """What one name has written in this call is known to the next coordinator."""
    create_topic(spark_cluster, topic, replication_factor=3)
    Job(servers, topic, 0, sinkPart="a").work("a").commit()
    opened = Job(servers, topic, 0, sinkPart="b").work("b")
    again = Job(servers, topic, 0, sinkPart="b").work("again")
    brokers = admin(spark_cluster)
    killed = leader_of(brokers, STATE, state_partition(topic, COORDINATOR_PARTITIONS))
    spark_cluster.kill_broker(killed)
    with pytest.raises(ConnectorError, match=SECOND):
        Job(servers, topic, 0, sinkPart="a").work("lost")
    opened.commit()
    with pytest.raises(ConnectorError, match=SECOND):
        again.commit()
    make_whole(spark_cluster)
    query.restart().is_at_work()
    for part in "ab":
        Job(servers, topic, 0, sinkPart=part).work("replayed").commit()
        with pytest.raises(ConnectorError, match=SECOND):
            Job(servers, topic, 0, sinkPart=part).work("lost")
    wait_for_isr(brokers, topic, 3)
    assert read(servers, topic) == {"a": ROWS, "b": ROWS}


def test_a_write_whose_commit_was_not_answered_may_be_tried_again(
    spark_cluster, servers, topic, query
):
    """Spark has a write aborted whose commit has failed, wherever the answer was lost."""
    create_topic(spark_cluster, topic, replication_factor=1)
    unheard = Job(servers, topic, 0).work("unheard")
    unheard.commit()
    unheard.abort()
    Job(servers, topic, 0).work("again").commit()
    with pytest.raises(ConnectorError, match=SECOND):
        Job(servers, topic, 0).work("lost")
    assert read(servers, topic) == {"unheard": ROWS}


def test_an_empty_frame_counts_as_a_write_of_its_name(spark_cluster, servers, topic, query):
    create_topic(spark_cluster, topic, replication_factor=1)
    Job(servers, topic, 0).work(rows=0).commit()
    with pytest.raises(ConnectorError, match=SECOND):
        Job(servers, topic, 0).work("lost")
    query.restart().is_at_work()
    Job(servers, topic, 0).work("replayed").commit()
    assert read(servers, topic) == {}


def test_names_that_change_at_a_restart_are_refused_until_the_micro_batch_has_ended(
    spark_cluster, servers, topic, query
):
    """Else the rows of the former names would be there twice."""
    create_topic(spark_cluster, topic, replication_factor=1)
    Job(servers, topic, 0).work("once").commit()
    again = query.restart()
    again.is_at_work()
    renamed = Job(servers, topic, 0, sinkPart="new", **{"delivery.timeout.ms": "2000"})
    renamed.work("once")
    with pytest.raises(ConnectorError, match=r"does not write all that it has written before"):
        renamed.commit()
    renamed.abort()
    assert read(servers, topic) == {"once": ROWS}
    again.batch = 1
    Job(servers, topic, 1, sinkPart="new").work("next").commit()
    assert read(servers, topic) == {"once": ROWS, "next": ROWS}


def test_a_number_is_one_of_its_micro_batch(spark_cluster, servers, topic, query):
    """The same number in each micro-batch would drop all rows but those of the first."""
    create_topic(spark_cluster, topic, replication_factor=1)
    Job(servers, topic, 0).work("first").commit()
    query.batch = 1
    with pytest.raises(ConnectorError, match=r"give each micro-batch a batchId of its own$"):
        Job(servers, topic, 0).work("lost")
    assert read(servers, topic) == {"first": ROWS}


def test_a_second_frame_is_not_taken_for_a_copy_of_the_first(spark_cluster, servers, topic, query):
    """With `idempotentKey` both have rows of the same source; each restart repeats the first."""
    create_topic(spark_cluster, topic, replication_factor=1)
    keyed = {"idempotentKey": "from,part,at", "originServers": "none"}

    def write(value: str, *, at: int, sink: str = topic) -> None:
        options = {"bootstrap.servers": servers, "topic": topic, "sinkId": sink} | keyed
        writer = HeadraceBatchWriter(parse_sink_options(options))
        origin = {"from": ["source"], "part": pa.array([0], pa.int32()), "at": [at]}
        written = [writer.write(iter([pa.record_batch({"value": [value]} | origin)]))]
        try:
            writer.commit(written)
        except ConnectorError:
            writer.abort(written)
            raise

    second = r"^\[BATCH_ID_TAKEN\] this is a second write with idempotentKey .* in micro-batch 0,"
    write("first", at=9)
    for _ in range(2):
        with pytest.raises(ConnectorError, match=second):
            write("second", at=3)
        query = query.restart()
        query.is_at_work()
        write("repeated", at=9)
    write("second", at=3, sink=f"{topic}-2")
    assert read(servers, topic) == {"first": 1, "second": 1}
    query.batch = 1
    write("next", at=10)
    other = Query(query._monkeypatch)
    other.is_at_work()
    write("a new checkpoint", at=11)
    assert read(servers, topic) == dict.fromkeys(("first", "second", "next", "a new checkpoint"), 1)
