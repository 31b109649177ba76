"""The client against real brokers: all of it together, and a leader killed in the middle."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

import pyarrow as pa
import pytest

from storage_engine.client.admin.reassignment import set_throttle, take_throttle_away
from storage_engine.client.admin.topics import (
    NewTopic,
    alter_topic_configs,
    create_partitions,
    create_topic,
    create_topics,
    delete_topics,
    describe_broker_configs,
    describe_topic_configs,
)
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.fetching.fetch_window import FetchWindow
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.client.producer.produce_queue import PartitionQueue, PendingBatch
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.settings.settings import LEADER_THROTTLED_RATE
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.client.fetching.ranges import read_range, read_ranges
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    settings = (("zookeeper.session.timeout.ms", "2000"),)
    request = UpRequest(brokers=3, port=0, settings=settings)
    with LocalCluster.running(folder, request) as brokers:
        yield brokers


@pytest.fixture
def cluster(brokers: LocalCluster) -> Iterator[Cluster]:
    with Cluster(brokers.bootstrap_servers, unknown_topic_wait_ms=1000) as cluster:
        yield cluster


def texts(first: int, count: int) -> pa.Array:
    return pa.array([b"%08d" % number for number in range(first, first + count)], pa.binary())


def values_in(cluster: Cluster, tp: TopicPartition) -> list[bytes]:
    start_offset = cluster.list_offsets({tp: EARLIEST})[tp]
    end_offset = cluster.list_offsets({tp: LATEST})[tp]
    values: list[bytes] = []
    for chunk in read_range(cluster, tp, start_offset, end_offset):
        decoded = decode_batches(
            chunk.records, start_offset=chunk.start_offset, end_offset=end_offset
        )
        values += decoded.values.to_pylist()
    return values


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_written(cluster, compression):
    topic = f"round-trip-{compression}"
    create_topic(cluster, topic, 3, 3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    with BatchWriter(cluster) as writer:
        for first in range(0, 3000, 100):
            for tp in partitions:
                for batch in encode_batches(texts(first, 100), compression=compression):
                    writer.append(tp, batch)
    for tp in partitions:
        assert values_in(cluster, tp) == texts(0, 3000).to_pylist()
    ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    assert set(ends.values()) == {3000}


def test_a_range_of_several_partitions_is_read_from_all_leaders(cluster):
    create_topic(cluster, "several", 6, 2)
    partitions = [TopicPartition("several", number) for number in range(6)]
    with BatchWriter(cluster) as writer:
        for tp in partitions:
            writer.append(tp, encode_batches(texts(0, 50))[0])
    chunks = list(read_ranges(cluster, dict.fromkeys(partitions, (10, 20))))
    assert sorted(chunk.tp for chunk in chunks) == partitions
    for chunk in chunks:
        decoded = decode_batches(chunk.records, start_offset=10, end_offset=20)
        assert decoded.values.to_pylist() == texts(10, 10).to_pylist()


def test_a_killed_leader_costs_no_batch_doubles_none_and_keeps_the_order(brokers, cluster):
    create_topic(cluster, "failover", 3, 3, {"min.insync.replicas": "2"})
    partitions = [TopicPartition("failover", number) for number in range(3)]
    victim = cluster.leader(partitions[0]).broker_id
    with BatchWriter(cluster) as writer:
        write_round(writer, partitions, 0)
        brokers.kill_broker(victim)
        write_round(writer, partitions, 1)
        writer.flush()
        brokers.start_broker(victim)
        write_round(writer, partitions, 2)
    for tp in partitions:
        assert values_in(cluster, tp) == texts(0, 3000).to_pylist()


def test_a_leader_killed_before_it_has_a_producers_first_batch_gets_no_later_one(
    brokers, cluster, monkeypatch
):
    """The first batch is on its way, its leader hangs and is killed: the next leader takes all
    batches, and no other one before the first."""
    create_topic(cluster, "first", 6, 3, {"min.insync.replicas": "2"})
    tp, *others = (TopicPartition("first", number) for number in range(6))
    victim = cluster.leader(tp).broker_id
    beside = next(other for other in others if cluster.leader(other).broker_id == victim)
    pid = brokers.state.broker(victim).pid
    assert pid is not None
    in_flight: list[int] = []
    start_first = PartitionQueue.start_first

    def counted(queue: PartitionQueue, broker_id: int) -> PendingBatch:
        batch = start_first(queue, broker_id)
        in_flight.append(len(queue.in_flight))
        return batch

    monkeypatch.setattr(PartitionQueue, "start_first", counted)
    with BatchWriter(cluster) as writer:
        # So that the connection is there.
        writer.append(beside, encode_batches(texts(0, 10))[0])
        writer.flush()
        in_flight.clear()
        os.kill(pid, signal.SIGSTOP)
        for first in range(0, 200, 10):
            writer.append(tp, encode_batches(texts(first, 10))[0])
        brokers.kill_broker(victim)
        writer.flush()
        write_round(writer, [tp], 1)
    # Sent, sent again to the next leader, and only then others behind it.
    assert in_flight[:2] == [1, 1]
    assert max(in_flight) > 1
    assert values_in(cluster, tp) == [*texts(0, 200).to_pylist(), *texts(1000, 1000).to_pylist()]
    brokers.start_broker(victim)


def test_a_leader_killed_under_fetches_in_flight_costs_and_doubles_nothing(
    brokers, cluster, monkeypatch
):
    create_topic(cluster, "ahead", 1, 3, {"min.insync.replicas": "2"})
    tp = TopicPartition("ahead", 0)
    with BatchWriter(cluster) as writer:
        for number in range(3):
            write_round(writer, [tp], number)
    victim = cluster.leader(tp).broker_id
    killed_under: list[int] = []
    receive = BrokerConnection.receive

    def receive_or_kill(connection, deadline):
        if connection.in_flight >= 4 and not killed_under:
            killed_under.append(connection.in_flight)
            brokers.kill_broker(victim)
        return receive(connection, deadline)

    # As on a link with a long delay.
    monkeypatch.setattr(FetchWindow, "wanted_in_flight", 6)
    monkeypatch.setattr(BrokerConnection, "receive", receive_or_kill)
    chunks = read_range(cluster, tp, 5, 2995, max_bytes=4000, isolation="read_committed")
    pieces = [piece for chunk in chunks for piece in chunk.committed()]
    values = decode_batches(pieces, start_offset=5, end_offset=2995).values
    assert killed_under
    assert values.to_pylist() == texts(5, 2990).to_pylist()
    assert cluster.leader(tp).broker_id != victim
    brokers.start_broker(victim)


def write_round(writer: BatchWriter, partitions: list[TopicPartition], number: int) -> None:
    """A hundred batches of ten records to each partition."""
    for first in range(number * 1000, number * 1000 + 1000, 10):
        for tp in partitions:
            writer.append(tp, encode_batches(texts(first, 10))[0])


def test_an_offset_out_of_range_names_the_valid_range(cluster):
    create_topic(cluster, "short", 1, 3)
    tp = TopicPartition("short", 0)
    with BatchWriter(cluster) as writer:
        writer.append(tp, encode_batches(texts(0, 7))[0])
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 0 to 7 \(exclusive\)"):
        list(read_range(cluster, tp, 100, 200))


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acks_reach_the_log(cluster, acks):
    topic = f"acks-{acks}"
    create_topic(cluster, topic, 1, 3)
    tp = TopicPartition(topic, 0)
    with BatchWriter(cluster, acks=acks) as writer:
        for first in range(0, 100, 10):
            writer.append(tp, encode_batches(texts(first, 10))[0])
    deadline = time.monotonic() + 60
    while cluster.list_offsets({tp: LATEST})[tp] < 100:
        assert time.monotonic() < deadline, "not all records are committed"
        time.sleep(0.02)
    assert values_in(cluster, tp) == texts(0, 100).to_pylist()


def test_a_batch_above_max_message_bytes_is_refused_by_name(cluster):
    create_topic(cluster, "small", 1, 3, {"max.message.bytes": "1000"})
    writer = BatchWriter(cluster)
    with pytest.raises(KafkaError, match=r"small-0: .*max\.message\.bytes"):
        writer.append(TopicPartition("small", 0), encode_batches(texts(0, 1000))[0])
        writer.flush()
    writer.abandon()


def test_topics_are_created_described_grown_and_deleted(cluster):
    create_topics(
        cluster,
        [
            NewTopic(name="one", partitions=1, replication_factor=1),
            NewTopic(name="two", assignment={0: [1, 2], 1: [3, 1]}, configs={"segment.ms": "5000"}),
        ],
    )
    view = cluster.metadata(["one", "two"])
    assert [list(p.replicas) for p in view.topics["two"].partitions.values()] == [[1, 2], [3, 1]]
    settings = describe_topic_configs(cluster, "two")
    assert (settings["segment.ms"].value, settings["segment.ms"].source) == ("5000", 1)
    create_partitions(cluster, {"one": 4})
    assert len(cluster.metadata(["one"]).topics["one"].partitions) == 4
    delete_topics(cluster, ["one", "two"])
    assert not cluster.metadata(["one", "two"]).topics


def test_brokers_tell_their_settings(cluster):
    cluster.metadata([])
    settings = describe_broker_configs(cluster, 2)
    assert settings["broker.id"].value == "2"


def test_a_throttle_is_in_force_at_every_broker_when_it_is_set(brokers, cluster):
    tp = TopicPartition("slow", 0)
    create_topic(cluster, tp.topic, 1, 1)
    pid = brokers.state.broker(3).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        setting = pool.submit(set_throttle, cluster, {tp: (3, 1)}, {tp: (2,)}, 1000)
        try:
            with pytest.raises(FutureTimeoutError):
                setting.result(1)
        finally:
            os.kill(pid, signal.SIGCONT)
        setting.result(60)
    for broker in (1, 2, 3):
        assert describe_broker_configs(cluster, broker)[LEADER_THROTTLED_RATE].value == "1000"
    take_throttle_away(cluster, [tp.topic], of_brokers=True)


@pytest.mark.parametrize(
    ("action", "code", "text"),
    [
        (lambda c: create_topic(c, "twice", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS, "twice"),
        (lambda c: create_topic(c, "a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b"),
        (
            lambda c: create_topic(c, "wide", 1, 9),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "3 brokers",
        ),
        (lambda c: delete_topics(c, ["nope"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nope"),
        (lambda c: create_partitions(c, {"twice": 1}), ErrorCode.INVALID_PARTITIONS, "twice"),
        (lambda c: describe_topic_configs(c, "x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'x'"),
    ],
)
def test_what_can_not_be_done_is_an_error_with_its_code_that_names_the_topic(
    cluster, action, code, text
):
    if "twice" not in cluster.metadata().topics:
        create_topic(cluster, "twice", 1, 1)
    with pytest.raises(KafkaError) as raised:
        action(cluster)
    assert raised.value.code is code
    assert text in str(raised.value)


def test_altering_nothing_is_refused(cluster):
    with pytest.raises(ConfigError, match="no setting is given"):
        alter_topic_configs(cluster, "t", {})
