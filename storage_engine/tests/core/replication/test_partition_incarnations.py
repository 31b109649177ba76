"""The incarnations of ISR members that a leader writes into the state. Source: R-REP7, R-REP9."""

import pytest

from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
)
from storage_engine.core.replication.partition import (
    FollowerFetched,
    LagCheck,
    LagLimits,
    LeaderPartition,
    Leadership,
    ProposeIsr,
)


def leading() -> LeaderPartition:
    leadership = Leadership(
        leader_epoch=1,
        partition_epoch=1,
        isr=frozenset({1, 2}),
        assigned_replicas=(1, 2, 3),
        joined_epochs={BrokerId(1): BrokerEpoch(10), BrokerId(2): BrokerEpoch(20)},
    )
    return LeaderPartition(
        leadership,
        local=1,
        log_end_offset=100,
        high_watermark=80,
        now_ms=0,
        limits=LagLimits(lag_max_ms=10),
    )


def fetched(
    leader: LeaderPartition, replica: int, offset: int, broker_epoch: int, *, eligible: bool = True
) -> list[ProposeIsr]:
    event = FollowerFetched(
        replica=replica,
        fetch_offset=offset,
        log_end_offset=100,
        now_ms=5,
        eligible=eligible,
        broker_epoch=broker_epoch,
    )
    return [effect for effect in leader.step(event) if isinstance(effect, ProposeIsr)]


def test_who_joins_the_isr_is_written_with_its_incarnation():
    (proposal,) = fetched(leading(), 3, 100, 33)
    assert proposal.joined_epochs == {1: 10, 2: 20, 3: 33}


@pytest.mark.parametrize(("offset", "eligible"), [(99, True), (100, False)])
def test_a_member_that_came_back_is_vouched_for_only_with_all_that_is_committed(offset, eligible):
    leader = leading()
    assert not fetched(leader, 2, offset, 25, eligible=eligible)
    (proposal,) = fetched(leader, 3, 100, 33)
    assert proposal.joined_epochs[BrokerId(2)] == 20
    leader = leading()
    assert not fetched(leader, 2, 100, 25)
    (proposal,) = fetched(leader, 3, 100, 33)
    assert proposal.joined_epochs[BrokerId(2)] == 25


def test_who_left_is_not_named():
    leader = leading()
    (proposal,) = leader.step(LagCheck(now_ms=99, log_end_offset=100))
    assert isinstance(proposal, ProposeIsr)
    assert proposal.isr == {1}
    assert proposal.joined_epochs == {1: 10}
