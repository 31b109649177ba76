"""JoinBatch and CommitBatch with real processes: what a sink's tasks write appears as a whole and
once, also when the coordinator is killed between the commit record and the markers. Read by
confluent-kafka. Source: R-SPARK2."""

import os
import random
import signal
from collections.abc import Iterator

import pyarrow as pa
import pytest

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.transactional_clients import Confluent, Reader
from integration_tests.transactions.test_transactions import (
    PARTITIONS,
    STATE,
    STATE_PARTITIONS,
    state_replicas,
)
from storage_engine.client.cluster import LATEST, Cluster
from storage_engine.client.micro_batches import (
    AlreadyCommitted,
    CommitOutcome,
    MemberId,
    MicroBatches,
    MicroBatchMember,
)
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.protocol.records.record_encoder import iter_encoded
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.local.local_cluster import LocalCluster

BATCHES = 30 if ALL_FAULTS else 10
KILLED_EVERY = 5
"""Micro-batches."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = (
        ("transaction.state.log.num.partitions", str(STATE_PARTITIONS)),
        ("transaction.state.log.replication.factor", "2"),
        ("transaction.state.log.min.isr", "1"),
    )
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings=settings) as made:
        yield made


@pytest.fixture
def client(cluster) -> Iterator[Cluster]:
    with Cluster(cluster.bootstrap_servers, request_timeout_ms=5_000) as made:
        yield made


def write(client: Cluster, member: MicroBatchMember, topic: str, values: list[bytes]) -> MemberId:
    """A task: the same values to all partitions."""
    with BatchWriter(client, transaction=member) as writer:
        for partition in range(PARTITIONS):
            for batch in iter_encoded(pa.array(values, pa.binary()), None, None):
                writer.append(TopicPartition(topic, partition), batch)
    return member.id


def joined(batches: MicroBatches, batch: int) -> MicroBatchMember:
    member = batches.join(batch)
    assert isinstance(member, MicroBatchMember)
    return member


def everywhere(values: list[bytes]) -> dict[int, list[bytes]]:
    return dict.fromkeys(range(PARTITIONS), values)


def no_transaction_is_open(client: Cluster, topic: str) -> bool:
    ends = {TopicPartition(topic, partition): LATEST for partition in range(PARTITIONS)}
    return client.list_offsets(ends, isolation="read_committed") == client.list_offsets(ends)


def test_the_attempts_that_the_driver_names_are_all_that_is_read(cluster, client):
    topic = "named"
    create_topic(cluster, topic, partitions=PARTITIONS)
    batches = MicroBatches(client, topic, "query")
    attempts = [joined(batches, 0) for _ in range(3)]
    ids = [write(client, member, topic, [b"%d" % number]) for number, member in enumerate(attempts)]
    batches.heartbeat(0)
    assert batches.commit(0, [ids[0], ids[2]]).outcome is CommitOutcome.COMMITTED
    assert batches.join(0) == AlreadyCommitted({})
    assert batches.commit(0, [ids[0], ids[2]]).outcome is CommitOutcome.ALREADY_COMMITTED
    given_up = joined(batches, 1)
    write(client, given_up, topic, [b"given up"])
    batches.abort([given_up.id])
    # It is answered once it is decided; until the markers are there leaders take what nobody reads.
    wait_until(lambda: no_transaction_is_open(client, topic), "the markers are there")
    with pytest.raises(KafkaError) as failure:
        write(client, given_up, topic, [b"too late"])
    assert failure.value.code is ErrorCode.INVALID_TXN_STATE
    with pytest.raises(KafkaError) as failure:
        batches.commit(1, [given_up.id])
    assert failure.value.code is ErrorCode.MEMBER_LOST
    last = write(client, joined(batches, 1), topic, [b"last"])
    source = TopicPartition("source", 0)
    assert batches.commit(1, [last], origins={source: 7}).outcome is CommitOutcome.COMMITTED
    assert joined(MicroBatches(client, topic, "another"), 0).origins == {source: 7}
    with Reader(cluster.bootstrap_servers, topic, PARTITIONS, "read_committed") as reader:
        reader.wait_for(everywhere([b"0", b"2", b"last"]))


def test_a_coordinator_killed_between_the_commit_record_and_the_markers_loses_nothing(
    cluster, client
):
    topic = "recorded"
    create_topic(cluster, topic, partitions=PARTITIONS)
    brokers = admin(cluster)
    Confluent(cluster.bootstrap_servers, "makes the topic").close()
    leaders = {leader_of(brokers, topic, partition) for partition in range(PARTITIONS)}
    still = leader_of(brokers, topic, 0)
    sink = next(
        name
        for name in (f"{topic}-{number}" for number in range(1000))
        if still not in state_replicas(brokers, name)
    )
    batches = MicroBatches(client, sink, "query")
    member = joined(batches, 0)
    write(client, member, topic, [b"committed"])
    loser = joined(batches, 0)
    write(client, loser, topic, [b"lost"])
    coordinator = leader_of(brokers, STATE, state_partition(sink, STATE_PARTITIONS))
    pid = next(b.pid for b in cluster.state.brokers if b.id == still)
    assert pid is not None and leaders
    os.kill(pid, signal.SIGSTOP)
    try:
        # Its partitions can't have the marker.
        assert batches.commit(0, [member.id]).outcome is CommitOutcome.COMMITTED
        cluster.kill_broker(coordinator)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert batches.commit(0, [member.id]).outcome is CommitOutcome.ALREADY_COMMITTED
    after = write(client, joined(batches, 1), topic, [b"after"])
    assert batches.commit(1, [after]).outcome is CommitOutcome.COMMITTED
    with Reader(cluster.bootstrap_servers, topic, PARTITIONS, "read_committed") as reader:
        reader.wait_for(everywhere([b"committed", b"after"]))
    cluster.start_broker(coordinator)
    for partition in range(PARTITIONS):
        wait_for_isr(brokers, topic, 3, partition)


def test_batches_appear_once_and_in_order_while_coordinators_are_killed(cluster, client):
    topic = "killed"
    create_topic(cluster, topic, partitions=PARTITIONS, config={"min.insync.replicas": "2"})
    brokers = admin(cluster)
    generator = random.Random(3)
    with Reader(cluster.bootstrap_servers, topic, PARTITIONS, "read_committed") as reader:
        batches = MicroBatches(client, topic, "query")
        for number in range(BATCHES):
            victim = None
            if number % KILLED_EVERY == 2:
                victim = leader_of(brokers, STATE, state_partition(topic, STATE_PARTITIONS))
            while not _batch_is_done(cluster, client, batches, number, victim, generator):
                victim = None
            if number % KILLED_EVERY == 2:
                for broker in range(1, 4):
                    cluster.start_broker(broker)
                for partition in range(PARTITIONS):
                    wait_for_isr(brokers, topic, 3, partition)
        reader.wait_for(everywhere([b"%d" % number for number in range(BATCHES)]))


def _batch_is_done(cluster, client, batches, number, victim, generator) -> bool:
    """One try of a driver that then restarts, with two tasks, of which one has nothing to write."""
    moment = generator.randrange(3)

    def perhaps_kill(now: int) -> None:
        if victim is not None and now == moment:
            cluster.kill_broker(victim)

    try:
        writer, idle = batches.join(number), batches.join(number)
        if isinstance(writer, AlreadyCommitted) or isinstance(idle, AlreadyCommitted):
            return True
        perhaps_kill(0)
        write(client, writer, batches.sink, [b"%d" % number])
        perhaps_kill(1)
        batches.commit(number, [writer.id, idle.id])
        perhaps_kill(2)
    except KafkaError as failure:
        assert failure.code in (ErrorCode.MEMBER_LOST, ErrorCode.INVALID_TXN_STATE), failure
        return False
    return True
