"""A fetch names what has changed, and speaks for the idle partitions of its session, too: it costs
nothing for them, and they stay in sync, are acknowledged and fail over as if it named all of them.
"""

from dataclasses import replace
from typing import Any

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import make_batch
from storage_engine.broker.replicas.fetcher import PeerFetcher
from storage_engine.broker.replicas.followed_partition import Followed
from storage_engine.broker.requests.fetch_reads import PartitionReader
from storage_engine.broker.requests.fetch_waits import NEWS_MS
from storage_engine.broker.requests.follower_sessions import LOOK_AT_ALL_MS, FollowerSession
from storage_engine.core.ids import TopicPartition
from storage_engine.core.replication.partition import CommittedIsr, LagCheck
from storage_engine.tests.broker.support import cluster_fixture

LAG_MS = 10_000
RETENTION_CHECK_MS = 20_000
PARTITIONS = 40
TP = TopicPartition("idle", 0)
ALL = {1, 2, 3}


def with_idle_topic(cluster: SimulatedCluster) -> None:
    cluster.create_topic(TP.topic, PARTITIONS)
    cluster.produced_when_there(TP, b"first")
    cluster.loop.run_for(5000)


cluster = cluster_fixture(
    prepare=with_idle_topic,
    replica_lag_time_max_ms=str(LAG_MS),
    log_retention_check_interval_ms=str(RETENTION_CHECK_MS),
)


def lead(cluster: SimulatedCluster) -> Any:
    """The leader's replica."""
    return cluster[cluster.state(TP).leader].replicas.get(TP)


def sessions(cluster: SimulatedCluster, broker: int) -> list[FollowerSession]:
    every = cluster[broker].parts.requests.fetch_sessions
    return [each for each in every if isinstance(each, FollowerSession)]


def others(cluster: SimulatedCluster) -> list[int]:
    return sorted(ALL - {cluster.state(TP).leader})


def test_a_record_costs_the_looks_at_its_own_partition_however_many_others_are_idle(
    cluster, monkeypatch
):
    looks: list[TopicPartition] = []
    read, wanted = PartitionReader._read_partition, Followed.wanted

    def counted_read(self: Any, request: Any, item: Any, *rest: Any) -> Any:
        looks.append(TopicPartition(item.topic, item.partition))
        return read(self, request, item, *rest)

    def counted_wanted(self: Any, max_bytes: int) -> Any:
        looks.append(self.topic_partition)
        return wanted(self, max_bytes)

    monkeypatch.setattr(PartitionReader, "_read_partition", counted_read)
    monkeypatch.setattr(Followed, "wanted", counted_wanted)
    cluster.loop.run_for(3000)
    looks.clear()
    cluster.loop.run_for(10_000)
    assert looks == []
    for _ in range(10):
        cluster.produced(TP, b"more")
    assert set(looks) == {TP}
    # Of two followers: a look at the fetch, one at the append, and what to ask for next.
    assert len(looks) <= 10 * 2 * 4


def test_what_several_partitions_got_in_one_turn_is_sent_in_one_answer(cluster, monkeypatch):
    answers: list[set[TopicPartition]] = []
    reply = PeerFetcher._on_reply

    def noted_reply(self: Any, answer: Any) -> None:
        with_records = [each for each in answer.partitions if each.records]
        if with_records:
            answers.append({TopicPartition(each.topic, each.partition) for each in with_records})
        reply(self, answer)

    monkeypatch.setattr(PeerFetcher, "_on_reply", noted_reply)
    broker = cluster[cluster.state(TP).leader]
    led = [each for each in broker.replicas.led_here() if not each.is_internal][:5]
    cluster.loop.run_for(3000)
    answers.clear()

    def append_to_all() -> None:
        for partition in led:
            partition.append(make_batch(), acks=-1)

    cluster.loop.call_soon(append_to_all)
    cluster.loop.run_for(1000)
    assert answers == [{each.topic_partition for each in led}] * 2


def test_a_partition_that_was_idle_for_long_keeps_its_followers_in_sync_at_its_next_record(cluster):
    cluster.loop.run_for(20 * LAG_MS)
    hosted = lead(cluster)
    cluster.produce(cluster.state(TP).leader, TP, b"next")
    cluster.loop.run_until(lambda: hosted.log.log_end_offset == 2)
    # The followers do not have it yet.
    assert hosted.high_watermark == 1
    hosted.step(LagCheck(now_ms=cluster.loop.monotonic_ms(), log_end_offset=2))
    assert hosted.leader.isr == CommittedIsr(members=frozenset(ALL))
    cluster.loop.run_for(2000)
    assert set(cluster.state(TP).isr) == ALL
    assert hosted.high_watermark == 2


def test_a_follower_that_hangs_while_all_is_idle_leaves_the_isr_when_its_time_is_over(cluster):
    cluster.loop.run_for(3 * LAG_MS)
    leader, (hangs, _) = cluster.state(TP).leader, others(cluster)
    cluster.network.cut(leader, hangs)
    cut_ms = cluster.loop.now_ms
    cluster.loop.run_for(LAG_MS // 4)
    cluster.produce(leader, TP, b"next")
    cluster.wait_in_sync(TP, *(ALL - {hangs}))
    # Its last fetch counts, not the one that made it in sync long before, and not the append. That
    # was a quarter of this time before, at most.
    assert LAG_MS * 3 // 4 - 1000 <= cluster.loop.now_ms - cut_ms <= LAG_MS * 3 // 2 + 1000


def test_idle_followers_fetch_some_times_in_the_time_that_they_may_lag(cluster, monkeypatch):
    fetches = []
    fetch = PeerFetcher._fetch

    def counted_fetch(self: Any, ready: Any, now_ms: int) -> None:
        fetches.append(now_ms)
        fetch(self, ready, now_ms)

    monkeypatch.setattr(PeerFetcher, "_fetch", counted_fetch)
    cluster.loop.run_for(2 * LAG_MS)
    fetches.clear()
    cluster.loop.run_for(2 * LAG_MS)
    # Each broker follows the two others.
    assert 6 * 2 * 3 <= len(fetches) <= 6 * 2 * 4


def test_a_record_after_long_idleness_is_acknowledged_without_a_wait(cluster):
    cluster.loop.run_for(2 * LAG_MS)
    for _ in range(3):
        cluster.loop.run_for(700)
        began_ms = cluster.loop.now_ms
        cluster.produced(TP, b"more")
        assert cluster.loop.now_ms - began_ms < NEWS_MS // 2


def test_a_high_watermark_that_moves_without_records_is_told_soon(cluster):
    """A follower that held up the records leaves the ISR: the other one got them long before."""
    leader, (hangs, other) = cluster.state(TP).leader, others(cluster)
    cluster.network.cut(leader, hangs)
    cluster.produce(leader, TP, b"next")
    hosted = lead(cluster)
    cluster.loop.run_until(lambda: hosted.high_watermark == 2)
    assert cluster[other].replicas.get(TP).high_watermark == 1
    cluster.loop.run_for(NEWS_MS + 100)
    assert cluster[other].replicas.get(TP).high_watermark == 2


def test_an_idle_partition_learns_of_its_high_watermark_within_a_long_poll(cluster):
    cluster.produced(TP, b"more")
    cluster.loop.run_for(1000)
    for broker in ALL:
        assert cluster[broker].replicas.get(TP).high_watermark == 2


def test_a_log_start_that_nobody_has_told_of_reaches_the_followers_of_an_idle_partition(cluster):
    lead(cluster).log.retention.advance_log_start(1)
    cluster.loop.run_for(LOOK_AT_ALL_MS + 2000)
    for broker in ALL:
        assert cluster[broker].replicas.get(TP).log.log_start_offset == 1


def test_the_log_start_that_retention_moves_reaches_the_followers_at_once(cluster):
    hosted = lead(cluster)
    hosted.log.roll_at_end()
    hosted.config = replace(hosted.config, log=replace(hosted.config.log, retention_ms=1))
    hosted.log.update_config(hosted.config.log)
    cluster.loop.run_for(RETENTION_CHECK_MS)
    assert hosted.log.log_start_offset == 1
    cluster.loop.run_for(2000)
    for broker in ALL:
        assert cluster[broker].replicas.get(TP).log.log_start_offset == 1


def test_as_another_incarnation_a_follower_is_told_of_all_partitions_in_its_session(cluster):
    leader, (other, _) = cluster.state(TP).leader, others(cluster)
    cluster.loop.run_for(3000)
    (session,) = [each for each in sessions(cluster, leader) if each.replica == other]
    assert not session.due
    hosted, before = lead(cluster), cluster[other].broker_epoch
    cluster[other].session.cut_off()
    cluster.loop.run_for(20_000)
    cluster[other].session.reconnect()
    cluster.loop.run_until(lambda: cluster[other].broker_epoch > before)
    cluster.loop.run_for(5000)
    cluster.wait_in_sync(TP, *ALL)
    assert hosted.leader._joined_epochs[other] == cluster[other].broker_epoch


def test_what_was_acknowledged_survives_a_leader_that_dies_at_that_moment(cluster):
    """Over and over, each time after the partition was idle and with other partitions busy."""
    payloads = [b"first"]
    for number in range(4):
        cluster.loop.run_for(3000)
        leader = cluster.state(TP).leader
        busy = TopicPartition(TP.topic, 1 + number)
        cluster.produce(cluster.state(busy).leader, busy, b"busy")
        answers = cluster.produce(leader, TP, b"payload %d" % number)
        cluster.loop.run_until(lambda answers=answers: bool(answers))
        assert answers[0].partitions[0].error_code == 0
        payloads.append(b"payload %d" % number)
        cluster[leader].kill()
        cluster.loop.run_until(lambda leader=leader: cluster.state(TP).leader not in (leader, -1))
        end = lead(cluster).log.log_end_offset
        assert end == len(payloads)
        cluster[leader].start()
        cluster.wait_in_sync(TP, *ALL)
    content = bytes(lead(cluster).log.reads.read(0, max_bytes=1 << 20).view())
    assert [content.count(payload) for payload in payloads] == [1] * len(payloads)


def test_a_session_that_its_follower_has_left_is_told_nothing_more(cluster):
    leader, (other, _) = cluster.state(TP).leader, others(cluster)
    hosted = lead(cluster)
    (before,) = [each for each in sessions(cluster, leader) if each.replica == other]
    cluster.network.reset(leader, other)
    cluster.loop.run_for(5000)
    watches = hosted.follower_watches._by_replica
    assert len(watches) == 2
    assert all(watch.session is not before for watch in watches.values())


def test_fetches_say_nothing_of_a_partition_that_their_session_has_left_out(cluster):
    leader, (other, _) = cluster.state(TP).leader, others(cluster)
    hosted = lead(cluster)
    (session,) = [each for each in sessions(cluster, leader) if each.replica == other]
    cluster.loop.run_for(3000)
    assert hosted.leader.has_in_session(other, session.clock)
    session.update((), [(TP.topic, [TP.partition])])
    assert not hosted.leader.has_in_session(other, session.clock)
