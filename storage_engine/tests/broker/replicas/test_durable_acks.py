"""`flush.before.ack`: acknowledged means flushed, on every replica in sync (R-LOG4, R-REP7)."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.tests.broker.support import cluster_fixture, code_of
from storage_engine.tests.sampling import seeds

TP = TopicPartition("t", 0)


def volatile(tmp_path, count: int = 3, **settings: str) -> SimulatedCluster:
    """Brokers whose disks forget what was not flushed."""
    return SimulatedCluster(
        tmp_path,
        count,
        disk=lambda b: SimulatedDisk(tmp_path / f"broker{b}"),
        **settings,
    )


def lose_power(cluster: SimulatedCluster, choose: random.Random | None = None) -> None:
    """All brokers lose it at once; without `choose` all that was not synced is gone."""
    for broker in cluster.brokers:
        broker.kill()
        assert isinstance(broker.disk, SimulatedDisk)
        broker.disk.lose_power(choose)
    cluster.loop.run_for(SESSION_TIMEOUT_MS + 100)
    for broker in cluster.brokers:
        broker.start()


@pytest.fixture
def durable(tmp_path) -> Iterator[SimulatedCluster]:
    """Three replicas in sync of a topic that is flushed before it is acknowledged."""
    cluster = volatile(tmp_path)
    assert cluster.create_topic("t", flush_before_ack="true").error_code == 0
    assert cluster.produced(TP, b"first") == 0
    cluster.wait_in_sync(TP, 1, 2, 3)
    yield cluster
    cluster.close()


def contents(cluster: SimulatedCluster, broker: int) -> bytes:
    log = cluster[broker].logs.logs[TP]
    offset, found = log.log_start_offset, b""
    while (piece := log.reads.read(offset, max_bytes=1 << 20)) is not None:
        found += bytes(piece.view())
        offset = piece.end_offset
    return found


def test_what_was_acknowledged_by_all_outlives_a_power_failure_of_all_brokers(durable):
    for number in range(20):
        durable.produced(TP, b"<record %d>" % number)
    lose_power(durable)
    assert durable.produced(TP, b"after") >= 21
    durable.wait_in_sync(TP, 1, 2, 3)
    for broker in (1, 2, 3):
        for number in range(20):
            assert b"<record %d>" % number in contents(durable, broker)


def test_without_the_setting_such_a_power_failure_takes_acknowledged_records(tmp_path):
    """The test above would notice."""
    cluster = volatile(tmp_path)
    cluster.create_topic("t")
    cluster.produced(TP, b"first")
    cluster.wait_in_sync(TP, 1, 2, 3)
    lose_power(cluster)
    assert cluster.produced(TP, b"after") == 0
    cluster.close()


@pytest.mark.parametrize("seed", seeds(12))
def test_nothing_acknowledged_is_lost_whenever_the_power_fails(tmp_path, seed):
    choose = random.Random(seed)
    cluster = volatile(tmp_path)
    small = {"segment_bytes": "300"} if seed % 2 else {}
    cluster.create_topic("t", flush_before_ack="true", **small)
    cluster.produced(TP, b"first")
    acknowledged: list[bytes] = []

    def send(number: int) -> None:
        payload = b"<record %d>" % number

        def on_reply(answer) -> None:
            if not isinstance(answer, TransportError) and not answer.partitions[0].error_code:
                acknowledged.append(payload)

        leader = cluster.state(TP).leader
        if leader != -1:
            cluster.send_produce(leader, TP, payload, on_reply)

    numbers = iter(range(10_000))
    for _ in range(3):
        for _ in range(choose.randint(1, 60)):
            send(next(numbers))
            cluster.loop.run_for(choose.choice((0, 0, 1, 2, 5)))
        if choose.random() < 0.3:
            cluster[choose.randint(1, 3)].loop.held = []
            cluster.loop.run_for(choose.randint(1, 50))
        lose_power(cluster, choose if seed % 3 else None)
        cluster.produced(TP, b"after")
        cluster.wait_in_sync(TP, 1, 2, 3)
        for broker in (1, 2, 3):
            held = contents(cluster, broker)
            assert [payload for payload in acknowledged if payload not in held] == []
    assert acknowledged
    cluster.close()


def test_acks_1_waits_for_the_leaders_own_disk(durable):
    leader = durable.state(TP).leader
    durable[leader].loop.held = []
    answers = durable.produce(leader, TP, b"second", acks=1)
    durable.loop.run_for(1000)
    assert not answers
    durable[leader].loop.release()
    assert code_of(durable.answer(answers, limit_ms=100)) is ErrorCode.NONE
    assert durable[leader].logs.logs[TP].recovery_point == 2


def test_acks_0_waits_for_nothing(durable):
    leader = durable.state(TP).leader
    durable[leader].loop.held = []
    durable.produce(leader, TP, b"second", acks=0)
    durable.loop.run_for(10)
    assert durable[leader].logs.logs[TP].log_end_offset == 2
    assert not len(durable[leader].replicas.get(TP).produce_waiters)


def test_consumers_see_nothing_that_a_power_failure_could_take(durable):
    leader = durable.state(TP).leader
    durable[leader].loop.held = []
    durable.produce(leader, TP, b"second")
    durable.loop.run_for(1000)
    answer = durable.answer(durable.fetch(leader, TP, 1))
    assert answer.partitions[0].high_watermark == 1
    assert not answer.partitions[0].records


def test_a_follower_acknowledges_what_it_has_flushed_and_no_more(durable):
    leader = durable.state(TP).leader
    follower = next(b for b in (1, 2, 3) if b != leader)
    durable[follower].loop.held = []
    answers = durable.produce(leader, TP, b"second")
    durable.loop.run_for(2000)
    assert durable[follower].logs.logs[TP].log_end_offset == 2
    led = durable[leader].replicas.get(TP).leader
    assert led.follower_end_offset(follower) == 1
    assert led.high_watermark == 1
    assert not answers
    durable[follower].loop.release()
    assert code_of(durable.answer(answers, limit_ms=100)) is ErrorCode.NONE
    assert led.follower_end_offset(follower) == 2


def test_other_partitions_do_not_wait_for_a_followers_flush(durable):
    other = TopicPartition("other", 0)
    durable.create_topic("other")
    durable.produced(other, b"first")
    durable.wait_in_sync(other, 1, 2, 3)
    for broker in durable.brokers:
        broker.loop.held = []
    durable.produce(durable.state(TP).leader, TP, b"second")
    durable.loop.run_for(100)
    leader = durable.state(other).leader
    answers = durable.produce(leader, other, b"second")
    assert code_of(durable.answer(answers, limit_ms=100)) is ErrorCode.NONE


def test_appends_during_a_flush_share_the_next_one(durable):
    leader = durable.state(TP).leader
    acks = durable[leader].replicas.durable_acks
    durable[leader].loop.held = []
    answers = [durable.produce(leader, TP, b"in the first round", acks=1)]
    durable.loop.run_for(10)
    fsyncs, rounds, batches = acks.fsyncs, acks.rounds, acks.batches
    answers += [durable.produce(leader, TP, b"in the next", acks=1) for _ in range(16)]
    durable.loop.run_for(10)
    durable[leader].loop.release()
    durable.loop.run_until(lambda: all(answers), limit_ms=100)
    assert acks.rounds == rounds + 1
    assert acks.fsyncs == fsyncs + 1
    assert acks.batches == batches + 17


single = cluster_fixture(
    "t", brokers=1, has_record=True, default_replication_factor="1", flush_before_ack="true"
)


def test_sixteen_producers_get_eight_acknowledgements_from_each_fsync(single):
    """The disk takes as long as the network; the slower the disk, the more are acknowledged."""
    acks = single[1].replicas.durable_acks
    fsyncs, answered = acks.fsyncs, [0]

    def send() -> None:
        def on_reply(answer) -> None:
            assert code_of(answer) is ErrorCode.NONE
            answered[0] += 1
            send()

        single.send_produce(1, TP, b"record", on_reply)

    for _ in range(16):
        send()
    single.loop.run_for(1000)
    assert answered[0] / (acks.fsyncs - fsyncs) >= 8


def test_a_lone_producer_waits_for_nobody(single):
    for _ in range(5):
        began_ms = single.loop.now_ms
        single.answer(single.produce(1, TP, b"record", acks=1))
        there_flush_and_back_ms = 3
        assert single.loop.now_ms - began_ms == there_flush_and_back_ms


def test_the_setting_can_change_while_the_partition_is_in_use(durable):
    leader = durable.state(TP).leader
    replicas = durable[leader].replicas
    partition = replicas.get(TP)
    strict = partition.config
    relaxed = replace(strict, flush_before_ack=False)
    durable[leader].loop.held = []
    answers = durable.produce(leader, TP, b"second", acks=1)
    durable.loop.run_for(10)
    assert not answers
    replicas.apply_topic_config("t", relaxed)
    assert code_of(durable.answer(durable.produce(leader, TP, b"third", acks=1))) is ErrorCode.NONE
    replicas.apply_topic_config("t", strict)
    late = durable.produce(leader, TP, b"fourth", acks=1)
    durable.loop.run_for(10)
    assert not late
    durable[leader].loop.release()
    durable.loop.run_until(lambda: bool(answers and late), limit_ms=100)


def test_a_flush_that_fails_answers_with_a_storage_error(durable):
    leader = durable.state(TP).leader

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    durable[leader].disk.sync = broken
    answer = durable.answer(durable.produce(leader, TP, b"second", acks=1))
    assert code_of(answer) is ErrorCode.KAFKA_STORAGE_ERROR
