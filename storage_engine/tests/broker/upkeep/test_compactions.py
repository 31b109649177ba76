"""Compaction loads its libraries beside the event loop, where all clients wait, and goes on once a
full disk has room again (R-LOG10)."""

from collections.abc import Iterator

import pytest

from simulation.world.clock import ProcessLoop
from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from simulation.world.requests import produce_request
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.errors import ErrorCode, LogFullError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.upkeep import Compaction, load_codec
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.tests.broker.replicas.test_producer_appends import batch_of
from storage_engine.tests.broker.settings.settings_requests import DONE, SET, TOPIC, alter
from storage_engine.tests.broker.support import cluster_fixture, code_of, disk_of
from storage_engine.tests.log.support import read_all


@pytest.fixture
def loads(monkeypatch):
    """The loops beside which Numpy and Arrow were loaded, which takes most of a second."""
    found: list[ProcessLoop] = []
    submit = ProcessLoop.submit

    def watched(self: ProcessLoop, work, on_done, on_error) -> None:
        if work is load_codec:
            found.append(self)
        submit(self, work, on_done, on_error)

    monkeypatch.setattr(ProcessLoop, "submit", watched)
    return found


single = cluster_fixture(brokers=1, default_replication_factor="1")


def test_libraries_are_loaded_in_the_background_with_the_first_compacted_topic(loads, single):
    for name, config, expected in (
        ("plain", {}, 0),
        ("compacted", {"cleanup_policy": "compact"}, 1),
        ("another", {"cleanup_policy": "compact,delete"}, 1),
    ):
        assert single.create_topic(name, **config).error_code == 0
        single.loop.run_until(
            lambda name=name: single[1].replicas.get(TopicPartition(name, 0)) is not None
        )
        assert len(loads) == expected, name
    # A broker that starts with compacted topics does it before it leads them.
    single[1].kill()
    single[1].start()
    single.loop.run_until(lambda: single[1].replicas.get(TopicPartition("another", 0)) is not None)
    assert len(loads) == 2 and loads[1] is single[1].loop


def test_libraries_are_loaded_when_a_topic_becomes_compacted(loads, single):
    assert single.create_topic("t").error_code == 0
    single.produced_when_there(TopicPartition("t", 0), b"x")
    assert not loads
    alter(single, 1, TOPIC, "t", ("cleanup.policy", SET, "compact"))
    single.loop.run_for(5000)
    assert len(loads) == 1


COMPACTED = [TopicPartition("one", 0), TopicPartition("two", 0)]


@pytest.fixture
def compacted(tmp_path) -> Iterator[SimulatedCluster]:
    """One broker with two logs of which much can be compacted, and a cleaner that has not looked
    yet."""
    made = SimulatedCluster(
        tmp_path,
        1,
        disk=lambda _b: SimulatedDisk(tmp_path),
        default_replication_factor="1",
        log_cleaner_backoff_ms="5000",
        log_flush_offset_checkpoint_interval_ms="1000000",
    )
    config = {"segment_bytes": "2000", "min_cleanable_dirty_ratio": "0"}
    for tp in COMPACTED:
        assert made.create_topic(tp.topic, **config).error_code == 0
        made.loop.run_until(lambda tp=tp: made[1].replicas.get(tp) is not None)
        for number in range(40 if tp is COMPACTED[0] else 80):
            fill(made, tp, number)
    for tp in COMPACTED:
        assert made[1].replicas.get(tp).log.segment_count > 3
        made[1].replicas.get(tp).log.flush()
        policy = ("cleanup.policy", SET, "compact")
        assert alter(made, 1, TOPIC, tp.topic, policy) == DONE
    yield made
    made.close()


def fill(cluster: SimulatedCluster, tp: TopicPartition, number: int) -> None:
    batch = batch_of(b"%d" % number * 50, codec="none")
    request = produce_request(*tp, batch, acks=1)
    answer = cluster.answer(cluster.ask(1, PRODUCE, 8, request))
    assert code_of(answer) is ErrorCode.NONE


def test_a_full_disk_takes_no_compacted_log_offline(compacted):
    disk_of(compacted, 1).room[compacted[1].folder] = 0
    ends = {tp: compacted[1].logs.logs[tp].log_end_offset for tp in COMPACTED}
    compacted.loop.run_for(30_000)
    for tp in COMPACTED:
        assert compacted[1].replicas.get(tp).role is Role.LEADER
        assert len(read_all(compacted[1].logs.logs[tp])) == ends[tp]
    disk_of(compacted, 1).room.clear()
    compacted.loop.run_for(30_000)
    for tp in COMPACTED:
        assert len(read_all(compacted[1].logs.logs[tp])) < ends[tp]


def test_a_log_whose_passes_can_not_begin_keeps_no_other_from_its_own(compacted, monkeypatch):
    begin = Compaction.begin
    refused: list[TopicPartition] = []

    def begin_one(compaction: Compaction, plan, **options):
        topic_partition = compaction._log.topic_partition
        if not refused:
            refused.append(topic_partition)
        if topic_partition == refused[0]:
            raise LogFullError("no room for it")
        return begin(compaction, plan, **options)

    monkeypatch.setattr(Compaction, "begin", begin_one)
    ends = {tp: compacted[1].logs.logs[tp].log_end_offset for tp in COMPACTED}
    compacted.loop.run_for(30_000)
    (other,) = set(COMPACTED) - set(refused)
    assert len(read_all(compacted[1].logs.logs[other])) < ends[other]
    # It is tried again when the others are done.
    monkeypatch.setattr(Compaction, "begin", begin)
    compacted.loop.run_for(30_000)
    assert len(read_all(compacted[1].logs.logs[refused[0]])) < ends[refused[0]]
