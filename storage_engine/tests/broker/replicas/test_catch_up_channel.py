"""A replica that fills its log is fetched over a channel of its own, and changes to that of the
in-sync replicas without a gap and without a doubled fetch, whatever breaks meanwhile (R-REP2)."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker import unexpected
from storage_engine.broker.cluster.leader_doubts import LeaderDoubts
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.replicas import fetcher
from storage_engine.broker.replicas.durable_acks import DurableAcks
from storage_engine.broker.replicas.fetcher import FetcherPorts, FetcherSettings, PeerFetcher
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.followed_partition import (
    CATCH_UP_CHANNEL,
    CHANNEL,
    DURABLE_CATCH_UP_CHANNEL,
    DURABLE_CHANNEL,
    FollowerState,
    ReplicationThrottle,
)
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.leader_answers import LeaderAnswers
from storage_engine.broker.settings.topic_config import TopicConfig
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Endpoint
from storage_engine.log.follower_appends import FollowerAppends
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.apis.fetch import FetchPartitionResponse, FetchResponse
from storage_engine.protocol.fetch_session import NO_SESSION
from storage_engine.protocol.records.record_batch import patch
from storage_engine.tests.broker.controller.reassigning import Moving
from storage_engine.tests.broker.replicas.lone_partition import partition_ports
from storage_engine.tests.log.support import ManualClock
from storage_engine.tests.protocol.hostile_batches import GOOD

STEADY = TopicPartition("steady", 0)
COLD = [TopicPartition("cold", p) for p in range(3)]
LEADER, COLD_BROKER = 1, 3
RECORDS = 60
SIZE = 1000
SETTINGS = {
    "replica_fetch_max_bytes": str(2 * SIZE),
    "replica_fetch_response_max_bytes": str(6 * SIZE),
}
"""An answer has some records of each partition, and is taken in several turns, those of a partition
as one run (see `FollowerAppends`)."""

MOMENTS = [
    *((CATCH_UP_CHANNEL, number, delay_ms) for number in (1, 2, 7) for delay_ms in (0, 1)),
    *((CHANNEL, number, delay_ms) for number in (2, 3, 5) for delay_ms in (0, 1)),
]
"""After the n-th fetch over a channel, so many ms later: the request is under way, or its answer,
or that is being taken."""


class Watched:
    """What the cold broker fetches, and how much it takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fetches: list[tuple[str, dict[TopicPartition, FollowerState]]] = []
        self.taken: dict[TopicPartition, int] = {}
        self.runs = 0
        self.on_fetch: Callable[[str], None] = lambda _channel: None
        fetch, take = PeerFetcher._fetch, LeaderAnswers.take
        store_run = FollowerAppends._store_run

        def watched_fetch(fetcher: Any, ready: Any, now_ms: int) -> None:
            fetch(fetcher, ready, now_ms)
            if fetcher._settings.broker_id == COLD_BROKER:
                asked = {f.topic_partition: f.progress for f in ready}
                self.fetches.append((fetcher.channel, asked))
                self.on_fetch(fetcher.channel)

        def watched_take(answers: Any, followed: Any, answer: Any) -> int:
            size = take(answers, followed, answer)
            if f"broker{COLD_BROKER}" in str(followed.partition.log.directory):
                tp = followed.topic_partition
                self.taken[tp] = self.taken.get(tp, 0) + size
            return size

        def watched_run(appends: Any, *given: Any) -> Any:
            self.runs += 1
            return store_run(appends, *given)

        monkeypatch.setattr(FollowerAppends, "_store_run", watched_run)
        monkeypatch.setattr(PeerFetcher, "_fetch", watched_fetch)
        monkeypatch.setattr(LeaderAnswers, "take", watched_take)

    def begin(self) -> None:
        self.fetches.clear()
        self.taken.clear()

    def channels_of(self, tp: TopicPartition) -> list[str]:
        """Over which it was fetched, one after the other."""
        channels: list[str] = []
        for channel, asked in self.fetches:
            if tp in asked and channels[-1:] != [channel]:
                channels.append(channel)
        return channels


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[Moving]:
    cluster = Moving(tmp_path_factory.mktemp("cluster"), **SETTINGS, count=3)
    try:
        cluster.create((LEADER, 2, COLD_BROKER), topic=STEADY.topic)
        cluster.create(*[(LEADER, 2, COLD_BROKER)] * len(COLD), topic=COLD[0].topic)
        for tp in (STEADY, *COLD):
            cluster.produced_when_there(tp, b"first")
        for number in range(RECORDS):
            for tp in COLD:
                cluster.produced(tp, b"%04d" % number + b"x" * (SIZE // 5))
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cold(made, monkeypatch) -> tuple[Moving, Watched]:
    """One broker has lost its data and comes back as soon as the loop runs."""
    for tp in (STEADY, *COLD):
        made.loop.run_until(lambda tp=tp: made.state(tp).leader == LEADER)
        made.wait_in_sync(tp, LEADER, 2, COLD_BROKER)
    made[COLD_BROKER].kill()
    shutil.rmtree(made[COLD_BROKER].folder)
    for tp in (STEADY, *COLD):
        made.wait_in_sync(tp, LEADER, 2)
    watched = Watched(monkeypatch)
    made[COLD_BROKER].begin()
    return made, watched


def wait_equal(cluster: Moving, *others: int) -> None:
    """All are in sync and alike; a broker that was killed may be named in sync a moment longer."""

    def end(broker: int, tp: TopicPartition) -> int:
        log = cluster[broker].logs.logs.get(tp)
        return -1 if log is None else log.log_end_offset

    brokers = others or (LEADER, 2, COLD_BROKER)
    for tp in (STEADY, *COLD):
        cluster.loop.run_until(
            lambda tp=tp: (
                len({end(broker, tp) for broker in brokers}) == 1
                and set(cluster.state(tp).isr) == set(brokers)
            )
        )
        assert len({cluster.contents(broker, tp) for broker in brokers}) == 1


def test_only_partitions_that_are_behind_use_the_channel_and_each_byte_comes_once(cold):
    cluster, watched = cold
    wait_equal(cluster)
    cluster.loop.run_for(2000)
    for tp in COLD:
        assert watched.channels_of(tp) == [CHANNEL, CATCH_UP_CHANNEL, CHANNEL]
        assert watched.taken[tp] == len(cluster.contents(LEADER, tp))
    assert watched.runs > len(COLD)
    assert watched.channels_of(STEADY) == [CHANNEL]
    for channel, asked in watched.fetches:
        is_behind = channel == CATCH_UP_CHANNEL
        assert all((progress is FollowerState.BEHIND) == is_behind for progress in asked.values())
    open_loops = cluster[COLD_BROKER].parts.replicas.fetchers._fetchers
    assert [channel for _, channel in open_loops] == [CHANNEL]


def break_connections(cluster: Moving) -> None:
    cluster.network.reset(COLD_BROKER, LEADER)


def give_up_connections(cluster: Moving) -> None:
    """What was sent arrives late, after what is sent anew."""
    cluster.network.give_up(COLD_BROKER, LEADER)


def kill_follower(cluster: Moving) -> None:
    cluster[COLD_BROKER].kill(session_ends_at_once=True)
    cluster[COLD_BROKER].begin()


def tell_leadership_again(cluster: Moving) -> None:
    """As after a change of the controller: the fetch under way does not count any more."""
    broker = cluster[COLD_BROKER]
    for partition in broker.replicas:
        endpoint = next(iter(broker.parts.replicas.fetchers._fetchers))[0]
        broker.replicas.refresh_endpoint(partition, {LEADER: endpoint})
    broker.replicas.roles_taken()


@pytest.mark.parametrize(
    "fault", [break_connections, give_up_connections, kill_follower, tell_leadership_again]
)
def test_whatever_breaks_while_it_catches_up_each_record_comes_once_and_in_order(cold, fault):
    cluster, watched = cold
    for channel, number, delay_ms in MOMENTS:
        left = number
        due: list[int] = []

        def on_fetch(used: str, channel: str = channel, due: list[int] = due) -> None:
            nonlocal left
            left -= used == channel
            if not left and not due:
                due.append(cluster.loop.now_ms)

        watched.begin()
        watched.on_fetch = on_fetch
        cluster.loop.run_until(lambda due=due: bool(due))
        watched.on_fetch = lambda _channel: None
        cluster.loop.run_for(delay_ms)
        fault(cluster)
        cluster.produced(STEADY, b"meanwhile")
        wait_equal(cluster)
        for tp in COLD:
            assert watched.taken[tp] == len(cluster.contents(LEADER, tp)), (channel, number)
        cluster[COLD_BROKER].kill(session_ends_at_once=True)
        shutil.rmtree(cluster[COLD_BROKER].folder)
        cluster[COLD_BROKER].begin()


def test_a_leader_that_dies_while_a_replica_catches_up_is_followed_no_more(cold):
    cluster, watched = cold
    channels: list[str] = []
    watched.on_fetch = channels.append
    cluster.loop.run_until(lambda: channels.count(CATCH_UP_CHANNEL) == 3)
    cluster[LEADER].kill()
    offset = cluster.produced(STEADY, b"after")
    wait_equal(cluster, 2, COLD_BROKER)
    assert b"after" in cluster.contents(COLD_BROKER, STEADY)
    assert offset == cluster[COLD_BROKER].logs.logs[STEADY].log_end_offset - 1
    cluster[LEADER].start()
    wait_equal(cluster)


# -- without a cluster -----------------------------------------------------------------------------


TURNS_MS = 20
"""Enough for all turns of the loop that follow from something, flushes included."""


class Leader:
    """A Transport that is answered by hand."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, Any]] = []

    def request(self, _to: Any, channel: str, *request: Any, on_reply: Any, **_more: Any) -> None:
        self.asked.append((channel, request[2], on_reply))

    def disconnect(self, *_: Any) -> None:
        """Nothing is open."""


class Follower:
    """A FetcherManager with some partitions."""

    def __init__(self, folder: Any, partitions: int, *, durable: bool = False) -> None:
        self.loop, self.leader = SimulatedLoop(), Leader()
        self.endpoint = Endpoint(broker_id=1, host="leader", port=9)
        config = TopicConfig(
            log=LogConfig(),
            min_insync_replicas=1,
            unclean_leader_election_enable=False,
            flush_before_ack=durable,
        )
        ports = partition_ports(self.loop, flush=DurableAcks(self.loop, self.loop).flush)
        self.partitions = []
        for number in range(partitions):
            tp = TopicPartition("t", number)
            log = PartitionLog.open(folder / str(tp), tp, LogConfig(), clock=ManualClock())
            partition = HostedPartition(
                tp, log=log, topic_id=UUID(int=1), config=config, high_watermark=0, ports=ports
            )
            partition.become_follower(1)
            self.partitions.append(partition)
        settings = FetcherSettings(
            broker_id=2, max_bytes=len(GOOD), response_max_bytes=1 << 20, min_bytes=1,
            wait_max_ms=500, backoff_ms=1000,
        )  # fmt: skip
        throttle = ReplicationThrottle(
            2, clock=self.loop, leader_rate=lambda: 1, follower_rate=lambda: 1
        )
        self.fetchers = FetcherManager(
            settings,
            FetcherPorts(
                transport=self.leader, scheduler=self.loop, clock=self.loop,
                broker_epoch=lambda: 1, keep_log_starts=lambda _: True, throttle=throttle,
                doubts=LeaderDoubts(MetadataCache(), self.loop),
            ),
        )  # fmt: skip
        for partition in self.partitions:
            self.fetchers.add(partition, self.endpoint)
        self.fetchers.wake()
        self.loop.run_for(TURNS_MS)

    def refuse(self) -> None:
        """The leader does not know yet that it leads."""
        _, request, on_reply = self.leader.asked.pop(0)
        code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        on_reply(
            FetchResponse(
                partitions=[
                    FetchPartitionResponse(wanted.topic, wanted.partition, error_code=code)
                    for wanted in request.partitions
                ]
            )
        )

    def answer(
        self, high_watermark: int, *, twice: bool = False, session_id: int = NO_SESSION
    ) -> None:
        """Every partition asked for gets the records that follow."""
        _, request, on_reply = self.leader.asked.pop(0)
        answers = []
        for wanted in request.partitions:
            records = bytearray(GOOD)
            patch(records, 0, base_offset=wanted.fetch_offset, leader_epoch=0)
            answer = FetchPartitionResponse(
                wanted.topic, wanted.partition, high_watermark=high_watermark,
                log_start_offset=0, records=memoryview(records),
            )  # fmt: skip
            answers += [answer, answer] if twice else [answer]
        on_reply(FetchResponse(partitions=answers, session_id=session_id))

    @property
    def ends(self) -> list[int]:
        return [partition.log.log_end_offset for partition in self.partitions]

    @property
    def channels(self) -> list[str]:
        return [channel for channel, _, _ in self.leader.asked]

    def close(self) -> None:
        self.fetchers.close()
        for partition in self.partitions:
            partition.log.close_without_flush()


def test_an_answer_is_taken_in_turns_between_which_others_are_served(tmp_path):
    follower = Follower(tmp_path, 3)
    seen: list[list[int]] = []
    follower.answer(high_watermark=3)
    for _ in range(3):
        follower.loop.call_soon(lambda: seen.append(follower.ends))
    assert follower.ends == [3, 0, 0]
    assert follower.leader.asked == []
    follower.loop.run_for(TURNS_MS)
    assert seen[0] == [3, 3, 0]
    assert follower.ends == [3, 3, 3]
    assert follower.channels == [CHANNEL]
    follower.close()


def test_an_answer_that_brings_nothing_is_taken_in_turns_too(tmp_path, monkeypatch):
    monkeypatch.setattr(fetcher, "PARTITIONS_PER_TURN", 2)
    taken: list[TopicPartition] = []
    take = LeaderAnswers.take

    def noted(answers: Any, followed: Any, answer: Any) -> int:
        taken.append(followed.topic_partition)
        return take(answers, followed, answer)

    monkeypatch.setattr(LeaderAnswers, "take", noted)
    follower = Follower(tmp_path, 5)
    follower.refuse()
    assert len(taken) == 2, "others have their turn before the rest"
    follower.loop.run_for(TURNS_MS)
    assert len(taken) == 5
    follower.close()


def test_what_is_left_of_an_answer_that_can_not_be_taken_is_asked_for_again(tmp_path, monkeypatch):
    """In its session the leader tells a high watermark once."""

    def fails(_fetcher: Any, _leaving: Any) -> None:
        raise RuntimeError("as nothing should")

    monkeypatch.setattr(unexpected, "is_fatal", False)
    monkeypatch.setattr(PeerFetcher, "_hand_over", fails)
    follower = Follower(tmp_path, 3)
    follower.answer(high_watermark=9, session_id=7)
    follower.loop.run_for(TURNS_MS)
    assert follower.ends == [3, 0, 0]
    (_, request, _) = follower.leader.asked[-1]
    assert [wanted.partition for wanted in request.partitions] == [0, 1, 2]
    follower.close()


def test_a_partition_that_is_answered_twice_is_taken_once(tmp_path):
    follower = Follower(tmp_path, 2)
    follower.answer(high_watermark=9, twice=True)
    follower.loop.run_for(TURNS_MS)
    assert follower.ends == [3, 3]
    follower.close()


def test_a_partition_that_is_let_go_in_the_middle_of_an_answer_takes_nothing_of_it(tmp_path):
    follower = Follower(tmp_path, 3)
    follower.answer(high_watermark=3)
    gone = follower.partitions[2]
    follower.fetchers.remove(gone.topic_partition)
    again = follower.partitions[1]
    follower.fetchers.add(again, follower.endpoint)
    follower.fetchers.wake()
    follower.loop.run_for(TURNS_MS)
    assert follower.ends == [3, 0, 0]
    (_, request, _) = follower.leader.asked[-1]
    assert [wanted.partition for wanted in request.partitions] == [0, 1]
    follower.close()


def test_the_end_of_all_following_in_the_middle_of_an_answer_ends_the_loop(tmp_path):
    follower = Follower(tmp_path, 3)
    follower.answer(high_watermark=9)
    for partition in follower.partitions:
        follower.fetchers.remove(partition.topic_partition)
    follower.loop.run_for(2000)
    assert follower.ends == [3, 0, 0]
    assert follower.leader.asked == []
    follower.close()


@pytest.mark.parametrize(
    ("durable", "normal", "catch_up"),
    [
        (False, CHANNEL, CATCH_UP_CHANNEL),
        (True, DURABLE_CHANNEL, DURABLE_CATCH_UP_CHANNEL),
    ],
)
def test_durable_partitions_have_channels_of_their_own(tmp_path, durable, normal, catch_up):
    follower = Follower(tmp_path, 1, durable=durable)
    assert follower.channels == [normal]
    follower.answer(high_watermark=9)
    follower.loop.run_for(TURNS_MS)
    assert follower.channels == [catch_up]
    follower.answer(high_watermark=6)
    follower.loop.run_for(TURNS_MS)
    assert follower.channels == [normal]
    # One that falls behind again leaves again.
    follower.answer(high_watermark=12)
    follower.loop.run_for(TURNS_MS)
    assert follower.channels == [catch_up]
    follower.close()
