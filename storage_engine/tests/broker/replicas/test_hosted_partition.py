"""One replica as a leader: what it takes, and when that counts. Source: R-REP3, R-REP5, R-REP11."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from simulation.world.clock import SimulatedLoop
from simulation.world.requests import make_batch
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch
from storage_engine.core.replication.partition import HighWatermarkAdvanced
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrPartition
from storage_engine.tests.broker.replicas.lone_partition import follower_of, partition_ports
from storage_engine.tests.broker.replicas.test_purgatory import Looking
from storage_engine.tests.broker.support import refused
from storage_engine.tests.log.support import TP, open_log

BROKER = BrokerId(2)
ALONE = LeaderAndIsrPartition(
    topic=TP.topic,
    partition=TP.partition,
    controller_epoch=ControllerEpoch(1),
    leader=BROKER,
    leader_epoch=LeaderEpoch(5),
    isr=[BROKER],
    partition_epoch=PartitionEpoch(0),
    replicas=[BROKER],
)
"""The order to lead a partition that has no other replica."""


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop()


@pytest.fixture
def leader(tmp_path, loop) -> Iterator[HostedPartition]:
    """Leads, alone, and wants two replicas in sync."""
    made = follower_of(open_log(tmp_path, LogConfig()), partition_ports(loop), min_in_sync=2)
    made.lead(ALONE)
    yield made
    made.log.close_without_flush()


def appended(leader: HostedPartition, *, acks: int) -> ErrorCode:
    outcome = leader.append(make_batch(), acks=acks)
    return outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE


def test_appends_of_one_turn_count_at_its_end_and_wake_readers_together(leader, loop):
    waiting = Looking(lambda: False)
    leader.data_waiters.add(waiting)
    for _ in range(10):
        leader.append(make_batch(), acks=-1)
    assert (leader.log.log_end_offset, leader.high_watermark, waiting.looks) == (10, 0, 0)
    loop.run_for(1)
    assert leader.high_watermark == 10
    assert 1 <= waiting.looks <= 2


def test_no_more_replicas_need_to_be_in_sync_than_the_partition_has(leader):
    assert appended(leader, acks=-1) is ErrorCode.NONE
    leader.lead(replace(ALONE, replicas=[BROKER, BrokerId(1)], partition_epoch=PartitionEpoch(1)))
    assert appended(leader, acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert appended(leader, acks=1) is ErrorCode.NONE
    assert leader.log.log_end_offset == 2


@pytest.mark.parametrize(
    ("leader_epoch", "code"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_coordinator_writes_under_the_leader_epoch_alone_that_it_was_loaded_in(
    leader, leader_epoch, code
):
    with refused(code):
        leader.append_state(leader_epoch, make_batch())
    leader.append_state(5, make_batch())
    assert leader.log.log_end_offset == 1


def test_who_leads_no_more_keeps_the_high_watermark_and_takes_nothing(leader, loop):
    leader.append(make_batch(), acks=1)
    loop.run_for(1)
    leader.follow(replace(ALONE, leader=BrokerId(1), leader_epoch=LeaderEpoch(6)))
    assert leader.high_watermark == 1
    assert appended(leader, acks=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.take_offline()
    assert appended(leader, acks=1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (leader.high_watermark, leader.log.log_end_offset) == (1, 1)


def test_a_high_watermark_that_moves_while_readers_are_woken_is_told_to_all_of_them(leader, loop):
    """An answer may be followed by the next request of its connection in the same call."""
    first = Looking(lambda: False)

    def move() -> bool:
        advanced = HighWatermarkAdvanced(high_watermark=leader.high_watermark)
        leader._carry_out(leader.leader, [advanced])
        return True

    leader.data_waiters.add(first)
    leader.data_waiters.add(Looking(move))
    leader.data_waiters.wake()
    loop.run_for(1)
    assert first.looks == 2
    leader.data_waiters.discard(first)
    assert not leader.data_waiters
