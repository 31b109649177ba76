"""R-CLI3 with real processes: consumers share a topic through ZooKeeper. One that
is killed is replaced at once, or within its session; nothing is left out, and only what it had not
committed comes twice."""

import contextlib
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from integration_tests.forks.forked import popen
from integration_tests.groups.zookeeper_member import COMMIT_EVERY
from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from storage_engine.client import (
    EARLIEST,
    LATEST,
    CommitRefusedError,
    ConfigError,
    ConsumerConnector,
    Fetched,
    HeadraceError,
    KafkaError,
    MessageStream,
    OffsetOutOfRangeError,
    SimpleConsumer,
    TopicFilter,
    TopicPartition,
)
from storage_engine.net.deadline import monotonic_ms
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.zookeeper.access import ANYBODY
from storage_engine.zookeeper.foreign_sessions import (
    ThreadedForeignSessions,
    ZooKeeperUnreachableError,
)

PARTITIONS = 4
RECORDS = 200

SESSION_MS = 20_000
"""Of those that live: a busy machine must not end it. ZooKeeper grants no longer one."""

VICTIMS_SESSION_MS = {"none": 4_000, "process": SESSION_MS}
"""By what is proof of death: with none its partitions are waited for so long."""
SOON_MS = SESSION_MS // 2
"""A quiet machine needs a twentieth of it; a session that expires takes all of its time."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), brokers=1) as made:
        yield made


@pytest.fixture(scope="module")
def zookeeper(cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.state.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def filled(cluster: LocalCluster, topic: str, records: int = RECORDS) -> str:
    """Number n is in partition n % PARTITIONS."""
    create_topic(cluster, topic, partitions=PARTITIONS, replication_factor=1)
    fill(cluster, topic, records)
    return topic


def fill(cluster: LocalCluster, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(records):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def connector(cluster: LocalCluster, group: str, **settings: object) -> ConsumerConnector:
    hears = {key: settings.pop(key) for key in ("on_assigned", "on_revoked") if key in settings}
    return ConsumerConnector(
        {
            "zookeeper.connect": cluster.state.zookeeper,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "zookeeper.connection.timeout.ms": 60_000,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in settings.items()},
        },
        **hears,
    )


def read(streams: list[MessageStream], count: int) -> list[tuple[int, int]]:
    """(partition, offset), until so many different ones have come."""
    seen: list[tuple[int, int]] = []

    def all_there() -> bool:
        for stream in streams:
            seen.extend((message.partition, message.offset) for message in stream.poll(50))
        return len(set(seen)) >= count

    wait_until(all_there, f"{count} messages are read")
    return seen


def owners(zookeeper: KazooClient, group: str, topic: str) -> dict[int, str]:
    path = f"/consumers/{group}/owners/{topic}"
    if zookeeper.exists(path) is None:
        return {}
    found = {}
    for partition in zookeeper.get_children(path):
        # It may be given up just now.
        with contextlib.suppress(NoNodeError):
            found[int(partition)] = zookeeper.get(f"{path}/{partition}")[0].decode()
    return found


def test_the_znodes_are_the_documented_ones_and_streams_share_the_partitions(cluster, zookeeper):
    topic = group = filled(cluster, "shared")
    heard: list[tuple[str, int]] = []
    first = connector(
        cluster,
        group,
        on_assigned=lambda tps: heard.append(("assigned", len(tps))),
        on_revoked=lambda tps: heard.append(("revoked", len(tps))),
    )
    with first:
        streams = first.create_message_streams({topic: 3})[topic]
        assert len(set(read(streams, RECORDS))) == RECORDS
        assert [sorted(tp.partition for tp in each.partitions) for each in streams] == [
            [0, 1],
            [2],
            [3],
        ]
        first.commit_offsets()
        node, stat = zookeeper.get(f"/consumers/{group}/ids/{first.consumer_id}")
        assert node == b'{"shared":3}' and stat.ephemeralOwner
        assert owners(zookeeper, group, topic) == dict.fromkeys(range(4), first.consumer_id)
        for partition in range(PARTITIONS):
            assert zookeeper.get(f"/consumers/{group}/offsets/{topic}/{partition}")[0] == b"50"
            assert zookeeper.exists(f"/consumers/{group}/owners/{topic}/{partition}").ephemeralOwner
        with connector(cluster, group) as second:
            other = second.create_message_streams({topic: 1})[topic]
            # One stream each, in the order of the names: the other's is the first or the last.
            expected = {
                n: second.consumer_id
                if n == (0 if second.consumer_id < first.consumer_id else 3)
                else first.consumer_id
                for n in range(PARTITIONS)
            }
            wait_until(lambda: owners(zookeeper, group, topic) == expected, "they share")
            assert other[0].poll(200) == [], "all is committed"
        wait_until(lambda: len(set(owners(zookeeper, group, topic).values())) == 1, "it is back")
        # With the other's stream in front only one partition moves, else three do.
        assert heard[0] == ("assigned", 4) and heard[1] in (("revoked", 1), ("revoked", 3))
        with pytest.raises(HeadraceError, match="exist already"):
            first.create_message_streams({topic: 1})
    assert owners(zookeeper, group, topic) == {}
    assert zookeeper.get_children(f"/consumers/{group}/ids") == []
    assert next(iter(streams[0]), None) is None, "a stream ends with its connector"


@pytest.mark.parametrize("proof", [pytest.param("none", marks=in_full), "process"])
def test_a_killed_member_is_replaced_and_nothing_is_left_out(cluster, zookeeper, proof):
    topic = group = filled(cluster, f"killed-{proof}")
    command = [sys.executable, "-P", "-m", "integration_tests.groups.zookeeper_member"]
    arguments = [cluster.state.zookeeper, group, topic, str(VICTIMS_SESSION_MS[proof]), proof]
    told: list[str] = []
    with (
        connector(cluster, group) as heir,
        popen(command + arguments, stdout=subprocess.PIPE, text=True) as victim,
    ):
        assert victim.stdout is not None
        while told.count("committed\n") < 2:
            told.append(victim.stdout.readline())
        (stream,) = heir.create_message_streams({topic: 1})[topic]
        seen: set[tuple[int, int]] = set()

        def owns(count: int) -> bool:
            seen.update((message.partition, message.offset) for message in stream.poll(50))
            return len(stream.partitions) == count

        wait_until(lambda: owns(PARTITIONS // 2), "it has a part while both live")
        assert set(owners(zookeeper, group, topic).values()) > {heir.consumer_id}
        moved = {tp.partition for tp in stream.partitions}
        victim.kill()
        killed_ms = monotonic_ms()
        if proof == "process":
            wait_until(lambda: owns(PARTITIONS), "the heir has all")
            assert monotonic_ms() - killed_ms < SOON_MS
        told += victim.stdout.readlines()
        done = _messages(told)
        wait_until(
            lambda: owns(PARTITIONS) and len(seen | done) == RECORDS, "the heir has read the rest"
        )
        last = len(told) - told[::-1].index("committed\n")
        kept = {each for each in _messages(told[:last]) if each[0] not in moved}
        assert not seen & kept, "what was committed does not come again"
        # What it had read since a commit: when it let go of some, and when it was killed.
        for partitions in (moved, set(range(PARTITIONS)) - moved):
            assert len([each for each in seen & done if each[0] in partitions]) <= COMMIT_EVERY
        heir.commit_offsets()


def _messages(told: list[str]) -> set[tuple[int, int]]:
    lines = [line.split() for line in told if line[0].isdigit()]
    return {(int(partition), int(offset)) for partition, offset in lines}


def end_session(servers: str, identity: tuple[int, bytes]) -> None:
    """As ZooKeeper does with a session that is silent for too long: another client closes it."""
    sessions = ThreadedForeignSessions(servers, SESSION_MS, lambda work: work(), access=ANYBODY)

    def is_over() -> bool:
        """Its owner connects again at once and may take the session back before it is closed."""
        told: queue.SimpleQueue[bool] = queue.SimpleQueue()
        sessions.end(*identity, told.put)
        return told.get(timeout=SESSION_MS / 1000)

    wait_until(is_over, "the session is closed")


def test_who_lost_its_session_hands_out_and_commits_nothing(cluster, zookeeper):
    """Its owner's znodes go to another while it stands still; afterwards it is a member again."""
    topic = group = filled(cluster, "expired")
    with connector(cluster, group) as first, connector(cluster, group) as second:
        (stream,) = first.create_message_streams({topic: 1})[topic]
        read([stream], RECORDS)
        session = first._session
        assert session is not None
        end_session(cluster.state.zookeeper, session._client.client_id)

        def refused() -> bool:
            try:
                first.commit_offsets()
            except CommitRefusedError:
                return True
            return not stream.partitions

        wait_until(refused, "it hears that its session is gone")
        (other,) = second.create_message_streams({topic: 1})[topic]
        again = read([stream, other], RECORDS)
        assert len(set(again)) == RECORDS, "nothing was committed, so everything comes again"
        wait_until(
            lambda: (
                set(owners(zookeeper, group, topic).values())
                == {first.consumer_id, second.consumer_id}
            ),
            "both are members",
        )


def test_filters_find_topics_that_are_made_later(cluster):
    filled(cluster, "filter-a", 40)
    filled(cluster, "other", 40)
    seen: list[str] = []
    with connector(cluster, "filters") as ours:
        streams = ours.create_message_streams_by_filter(TopicFilter.white_list("filter-.*"), 2)

        def work(stream: MessageStream) -> None:
            seen.extend(message.topic for message in stream)

        threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(seen) == 40, "the topic is read")
        filled(cluster, "filter-b", 40)
        wait_until(lambda: len(seen) == 80, "the new topic is read")
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a stream ends with its connector"
    assert Counter(seen) == {"filter-a": 40, "filter-b": 40}


def test_automatic_commits_cover_what_counts_as_consumed(cluster, zookeeper):
    topic = group = filled(cluster, "automatic")
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 50}
    with connector(cluster, group, **settings) as ours:
        (stream,) = ours.create_message_streams({topic: 1})[topic]
        message = next(stream)
        path = f"/consumers/{group}/offsets/{topic}/{message.partition}"
        wait_until(lambda: zookeeper.exists(path), "it is committed")
        assert zookeeper.get(path)[0] == b"0", "its message is being worked on"
        next(stream)
        wait_until(lambda: zookeeper.get(path)[0] != b"0", "the first is done")
    with pytest.raises(ZeroDivisionError), connector(cluster, group, **settings) as ours:
        (stream,) = ours.create_message_streams({topic: 1})[topic]
        first = next(stream)
        raise ZeroDivisionError
    with connector(cluster, group) as ours:
        (stream,) = ours.create_message_streams({topic: 1})[topic]
        offsets = dict.fromkeys(range(PARTITIONS), 50)
        for partition, offset in read([stream], RECORDS - 2):
            offsets[partition] = min(offsets[partition], offset)
        assert offsets[first.partition] == first.offset, "not committed after an error"
        assert sum(offsets.values()) == 2, "and what was committed does not come again"


def test_the_low_level_consumer_fetches_from_where_it_is_told(cluster):
    topic = "low-level"
    create_topic(cluster, topic, partitions=PARTITIONS, replication_factor=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(RECORDS):
        at_ms = 1_000 * number + 1
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS, timestamp=at_ms)
    assert producer.flush(60) == 0
    each = RECORDS // PARTITIONS
    partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    first = partitions[0]
    with SimpleConsumer(cluster.bootstrap_servers) as ours:
        fetched = ours.fetch(first, 7)
        assert [message.offset for message in fetched.messages] == list(range(7, each))
        assert (fetched.next_offset, fetched.high_watermark) == (each, each)
        assert ours.fetch(first, 0).messages[0].value == b"0", "going back is free"
        assert ours.fetch(first, each, max_wait_ms=50) == Fetched([], each, -1)
        many = ours.multifetch({tp: tp.partition for tp in partitions})
        for tp, got in many.items():
            assert [int(m.value) for m in got.messages] == list(
                range(tp.partition * (PARTITIONS + 1), RECORDS, PARTITIONS)
            )
        with pytest.raises(OffsetOutOfRangeError, match="offsets 0 to 50"):
            ours.fetch(first, each + 1)
        assert ours.offsets_before(first, LATEST, 1) == [each]
        assert ours.offsets_before(first, EARLIEST, 3) == [0]
        assert ours.offsets_before(first, 40_000, 1) == [10]
        assert ours.offsets_before(first, 40_000, 3) == [10, 5, 0]
        assert ours.offsets_before(first, 10**12, 100) == list(range(each, -1, -1))
        for wrong in (lambda: ours.offsets_before(first, LATEST, 0), lambda: ours.fetch(first, -1)):
            with pytest.raises(ConfigError):
                wrong()
    with (
        SimpleConsumer(cluster.bootstrap_servers, deadline_ms=2_000) as ours,
        pytest.raises(KafkaError, match="does not exist"),
    ):
        ours.fetch(TopicPartition("nothing", 0), 0)


def test_what_is_wrong_is_told_in_one_line(cluster, zookeeper):
    topic = filled(cluster, "wrong", 4)
    with pytest.raises(ConfigError, match=r"no broker has ever registered.*path"):
        connector(
            cluster, "g", zookeeper_connect=f"{cluster.state.zookeeper}/nothing"
        ).create_message_streams({topic: 1})
    with pytest.raises(ZooKeeperUnreachableError, match=r"zookeeper\.connect"):
        connector(
            cluster, "g", zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms=300
        ).create_message_streams({topic: 1})
    for settings in ({"group_id": "a/b"}, {"auto_commit": True}):
        with pytest.raises(ConfigError):
            connector(cluster, "g", **settings)
    for counts in ({}, {topic: 0}, {"a/b": 1}):
        with pytest.raises(ConfigError):
            connector(cluster, "g").create_message_streams(counts)
    zookeeper.create(f"/consumers/damaged/offsets/{topic}/0", b"ten", makepath=True)
    with connector(cluster, "damaged") as ours:
        (stream,) = ours.create_message_streams({topic: 1})[topic]
        with pytest.raises(HeadraceError, match=r"/consumers/damaged/offsets/wrong/0 holds b'ten'"):
            next(stream)
