"""`headrace status`: what is made of the brokers' answers."""

from dataclasses import replace
from uuid import UUID

import pytest

from storage_engine.client.metadata import ClusterMetadata, TopicMetadata
from storage_engine.protocol.apis.metadata import MetadataBroker, MetadataPartition
from storage_engine.tools.commands.local_cluster.status import describe, print_status
from storage_engine.tools.local.cluster_file import BrokerEntry, ClusterFile

CLUSTER = ClusterFile(
    zookeeper="127.0.0.1:2181",
    zookeeper_pid=50,
    zookeeper_dir="zookeeper",
    brokers=tuple(
        replace(BrokerEntry.for_id(i, "127.0.0.1", 9091 + i), pid=100 + i) for i in (1, 2, 3)
    ),
)


def _view(
    *, controller: int = 1, leader: int = 2, isr: tuple[int, ...] = (2, 3)
) -> ClusterMetadata:
    partitions = {
        0: MetadataPartition(partition=0, leader=1, replicas=[1, 2, 3], isr=[1, 2, 3]),
        1: MetadataPartition(partition=1, leader=leader, replicas=[2, 3, 1], isr=list(isr)),
    }
    topic = TopicMetadata(topic="t", topic_id=UUID(int=1), is_internal=False, partitions=partitions)
    brokers = {
        entry.id: MetadataBroker(broker_id=entry.id, host=entry.host, port=entry.port)
        for entry in CLUSTER.brokers
    }
    return ClusterMetadata(brokers=brokers, topics={"t": topic}, controller_id=controller)


def test_a_partition_that_misses_a_replica_is_under_replicated_not_offline() -> None:
    status = describe(CLUSTER, {1: None, 2: _view(), 3: _view()})
    assert status.answered_by == 2
    assert status.controller == 1
    assert status.topics == [{"name": "t", "partitions": 2, "replication_factor": 3}]
    assert status.under_replicated == [
        {"topic": "t", "partition": 1, "leader": 2, "replicas": [2, 3, 1], "isr": [2, 3]}
    ]
    assert status.offline == []
    assert [broker["serves"] for broker in status.brokers] == [False, True, True]


def test_a_partition_without_a_leader_is_offline() -> None:
    status = describe(CLUSTER, {1: _view(leader=-1, isr=(2,)), 2: None, 3: None})
    assert [(row["partition"], row["leader"]) for row in status.offline] == [(1, None)]


@pytest.mark.parametrize(
    ("isr", "why"),
    [
        ((4, 5), "waits for brokers 4, 5 of the last ISR"),
        (
            (2, 4),
            "waits for broker 4 of the last ISR; the end of the log may be lost, or the log "
            "dir failed, on broker 2",
        ),
        ((2,), "an election is under way, or the log dir of broker 2 failed"),
    ],
)
def test_a_partition_without_a_leader_is_shown_with_what_it_waits_for(
    isr: tuple[int, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = describe(CLUSTER, {1: _view(leader=-1, isr=isr), 2: None, 3: None})
    assert [row["why"] for row in status.offline] == [why]
    print_status(status)
    assert f"t-1 {why}\n" in capsys.readouterr().out


def test_a_controller_that_is_not_alive_is_none() -> None:
    assert describe(CLUSTER, {1: _view(controller=9), 2: None, 3: None}).controller is None


def test_a_cluster_that_is_down_is_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    down = replace(
        CLUSTER,
        zookeeper_pid=None,
        brokers=tuple(replace(entry, pid=None) for entry in CLUSTER.brokers),
    )
    status = describe(down, dict.fromkeys((1, 2, 3)))
    assert [broker["alive"] for broker in status.brokers] == [False] * 3
    assert (status.controller, status.topics) == (None, [])
    print_status(status)
    output = capsys.readouterr().out
    assert "ZooKeeper 127.0.0.1:2181 (does not run)" in output
    assert "no broker answers" in output


def test_the_table_names_controller_and_ailing_partitions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_status(describe(CLUSTER, {1: _view(), 2: _view(), 3: _view()}))
    output = capsys.readouterr().out
    assert "under-replicated partitions: 1\n" in output
    assert "offline partitions: none\n" in output
    first = next(line for line in output.splitlines() if line.startswith("     1"))
    assert first.split() == ["1", "127.0.0.1", "9092", "101", "yes", "yes", "yes"]
