"""The losses and divergences that the sources describe step by step, replayed with real brokers in
simulated time: KIP-101, KIP-279. Source: R-REP8."""

from collections.abc import Iterator

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.records.record_batch import HEADER_BYTES, iter_headers

TP = TopicPartition("t", 0)


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    """Three replicas in sync with one record; leaders stay where they are."""
    made = SimulatedCluster(
        tmp_path,
        disk=lambda broker: SimulatedDisk(tmp_path / f"broker{broker}"),
        auto_leader_rebalance_enable="false",
    )
    assert made.create_topic("t", unclean_leader_election_enable="true").error_code == 0
    assert made.produced(TP, b"first") == 0
    made.wait_in_sync(TP, 1, 2, 3)
    made.loop.run_for(1000)
    yield made
    made.close()


def contents(cluster: SimulatedCluster, broker: int) -> list[tuple[int, bytes]]:
    """(leader epoch, payload) of each record."""
    log = cluster[broker].logs.logs[TP]
    offset, found = log.log_start_offset, []
    while (piece := log.reads.read(offset, max_bytes=1 << 20)) is not None:
        data = bytes(piece.view())
        for position, header in iter_headers(data):
            payload = data[position + HEADER_BYTES : position + header.size_in_bytes]
            found.append((header.partition_leader_epoch, payload))
            offset = header.next_offset
    return found


def payloads(cluster: SimulatedCluster, broker: int) -> list[bytes]:
    return [payload for _, payload in contents(cluster, broker)]


def end_of(cluster: SimulatedCluster, broker: int) -> int:
    return cluster[broker].logs.logs[TP].log_end_offset


def wait_for_leader(cluster: SimulatedCluster, *candidates: int) -> int:
    cluster.loop.run_until(
        lambda: cluster.state(TP).leader in candidates, limit_ms=2 * SESSION_TIMEOUT_MS
    )
    return cluster.state(TP).leader


def test_a_record_acknowledged_before_followers_know_it_outlives_two_leaders(cluster):
    """Document 003: s1 acknowledges and dies before s2 and s3 know the new high watermark; s2
    leads, and s3 follows it; s2 dies too; s3 leads. Cut to its late high watermark, s3 would have
    lost the record."""
    s1, s2, s3 = cluster.state(TP).isr
    assert cluster.state(TP).leader == s1
    acknowledged = cluster.produce(s1, TP, b"acknowledged")
    cluster.loop.run_until(lambda: bool(acknowledged))
    answer = acknowledged[0]
    assert not isinstance(answer, TransportError)
    assert answer.partitions[0].error_code == 0
    # Followers have the record, and do not know yet that it is committed.
    for follower in (s2, s3):
        assert end_of(cluster, follower) == 2
        assert cluster[follower].replicas.get(TP).high_watermark == 1
    cluster[s1].kill()
    assert wait_for_leader(cluster, s2) == s2
    cluster.loop.run_until(lambda: cluster[s3].replicas.get(TP).leader_id == s2)
    cluster.loop.run_for(100)
    cluster[s2].kill()
    assert wait_for_leader(cluster, s3) == s3
    assert payloads(cluster, s3) == [b"first", b"acknowledged"]
    cluster.loop.run_until(lambda: cluster[s3].replicas.get(TP).high_watermark == 2)
    answer = cluster.answer(cluster.fetch(s3, TP, 1))
    assert b"acknowledged" in bytes(answer.partitions[0].records)


def test_a_follower_that_restarts_does_not_cut_what_its_dying_leader_acknowledged(cluster):
    """KIP-101, scenario 1: a follower restarts and would cut to its own high watermark; the leader
    dies at once; the follower leads without the acknowledged record."""
    leader, follower, other = cluster.state(TP).isr
    cluster[other].kill()
    cluster.loop.run_until(lambda: other not in cluster.state(TP).isr)
    assert cluster.produced(TP, b"acknowledged") == 1
    assert cluster[follower].replicas.get(TP).high_watermark == 1
    assert end_of(cluster, follower) == 2
    cluster[follower].kill()
    cluster[follower].start()
    cluster[leader].kill()
    assert wait_for_leader(cluster, follower) == follower
    assert payloads(cluster, follower) == [b"first", b"acknowledged"]


def test_replicas_that_lost_different_tails_agree_after_an_unclean_election(cluster):
    """KIP-101, scenario 2: the power fails for both; the one with the shorter log comes back first,
    leads, and writes at the offset at which the other has something else."""
    a, b, c = cluster.state(TP).isr
    cluster[c].kill()
    cluster.loop.run_until(lambda: c not in cluster.state(TP).isr)
    assert cluster.produced(TP, b"only on a") == 1
    cluster[a].kill()
    cluster[b].kill()
    # What was on both is on the medium of one only.
    cluster[b].disk.lose_power()
    cluster.loop.run_for(SESSION_TIMEOUT_MS + 100)
    cluster[b].start()
    assert wait_for_leader(cluster, b) == b
    before = end_of(cluster, b)
    assert before < 2, "the other lost its tail"
    while end_of(cluster, b) < 3:
        cluster.produced(TP, b"of b")
    cluster[a].start()
    cluster.wait_in_sync(TP, a, b)
    cluster.produced(TP, b"afterwards")
    cluster.loop.run_until(lambda: contents(cluster, a) == contents(cluster, b))
    assert b"only on a" not in payloads(cluster, a)


def test_logs_agree_after_fast_failovers_with_epochs_that_others_never_saw(cluster):
    """KIP-279: two leaders in a row write under epochs that the other has not seen; one comparison
    of epochs is not enough to find where they part."""
    a, b, c = cluster.state(TP).isr
    cluster[c].kill()
    cluster.loop.run_until(lambda: c not in cluster.state(TP).isr)
    for round_ in range(3):
        leader, dead = (a, b) if round_ % 2 == 0 else (b, a)
        if cluster[dead].up:
            cluster[dead].kill()
        cluster.loop.run_for(SESSION_TIMEOUT_MS + 100)
        if not cluster[leader].up:
            cluster[leader].start()
        assert wait_for_leader(cluster, leader) == leader
        for number in range(1 + round_):
            cluster.produced(TP, b"%d of round %d" % (number, round_))
        cluster[leader].kill()
        cluster.loop.run_for(SESSION_TIMEOUT_MS + 100)
    for broker in (a, b, c):
        cluster[broker].start()
    cluster.wait_in_sync(TP, a, b, c, limit_ms=120_000)
    cluster.produced(TP, b"afterwards")
    cluster.loop.run_until(
        lambda: contents(cluster, a) == contents(cluster, b) == contents(cluster, c)
    )
    epochs = [epoch for epoch, _ in contents(cluster, a)]
    assert epochs == sorted(epochs)
