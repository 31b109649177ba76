"""A replica that fills its log is fetched over a channel of its own, and changes to that of the
in-sync replicas without a gap and without a doubled fetch, whatever breaks meanwhile (R-REP2)."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from storage_engine.broker.replicas.fetcher import PeerFetcher
from storage_engine.broker.replicas.followed_partition import (
    CATCH_UP_CHANNEL,
    CHANNEL,
    FollowerState,
)
from storage_engine.broker.replicas.leader_answers import LeaderAnswers
from storage_engine.core.ids import TopicPartition
from storage_engine.log.follower_appends import FollowerAppends
from storage_engine.tests.broker.controller.reassigning import Moving

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
    """The fetches of the cold broker, and how much it takes."""

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
    """Messages under way arrive late, after those that are sent anew."""
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
