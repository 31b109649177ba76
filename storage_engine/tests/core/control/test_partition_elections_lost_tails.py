"""Elections after machines have lost their power: R-REP7, R-REP9."""

from collections.abc import Collection

from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState
from storage_engine.core.control.partition_elections import (
    Elected,
    Situation,
    due_election,
    joined_epochs_of,
    suspects,
)
from storage_engine.core.ids import (
    NO_TAIL_LOST,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
)


def state(leader: int, isr: tuple[int, ...], joined: dict[int, int] | None = None):
    return PartitionState(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(3),
        isr=tuple(BrokerId(b) for b in isr),
        controller_epoch=ControllerEpoch(1),
        partition_epoch=PartitionEpoch(5),
        joined_epochs={BrokerId(b): BrokerEpoch(e) for b, e in (joined or {}).items()},
    )


def broker(broker_id: int, epoch: int, tail_lost_epoch: int = NO_TAIL_LOST) -> BrokerInfo:
    return BrokerInfo(
        broker_id=BrokerId(broker_id),
        host="h",
        port=1,
        epoch=BrokerEpoch(epoch),
        tail_lost_epoch=BrokerEpoch(tail_lost_epoch),
    )


def brokers(*infos: BrokerInfo) -> dict[BrokerId, BrokerInfo]:
    return {info.broker_id: info for info in infos}


def elected(
    running: Collection[int],
    suspect: Collection[int],
    isr: tuple[int, ...] = (1, 2),
    leader: int = -1,
    *,
    bounced: Collection[int] = (),
    unclean: bool = False,
) -> Elected | None:
    """The outcome for replicas 1, 2 and 3."""
    return due_election(
        Situation(
            assigned=(BrokerId(1), BrokerId(2), BrokerId(3)),
            state=state(leader, isr),
            running={BrokerId(b) for b in running},
            bounced={BrokerId(b) for b in bounced},
            suspect={BrokerId(b) for b in suspect},
            leaving=set(),
            unclean=unclean,
            preferring=False,
            renewing=False,
            move=None,
        )
    )


# --- who is a suspect ---


def test_a_member_that_joined_before_it_may_have_lost_its_tail_is_a_suspect():
    known = brokers(broker(1, 50, 50), broker(2, 40))
    assert suspects(state(2, (1, 2), {1: 20, 2: 40}), known) == {1}


def test_a_member_that_joined_since_is_none_nor_is_one_in_a_later_incarnation():
    joined = {1: 50, 2: 40}
    assert not suspects(state(2, (1, 2), joined), brokers(broker(1, 50, 50), broker(2, 40)))
    assert not suspects(state(2, (1, 2), joined), brokers(broker(1, 90, 50), broker(2, 40)))


def test_a_suspect_stays_one_when_its_process_restarts():
    assert suspects(state(-1, (1,), {1: 20}), brokers(broker(1, 90, 50))) == {1}


def test_nobody_vouches_for_a_state_that_names_no_incarnations():
    known = brokers(broker(1, 50, 50), broker(2, 40))
    assert suspects(state(2, (1, 2)), known) == {1}, "2 never lost anything"


def test_a_broker_that_is_away_is_no_suspect_but_one_that_may_return():
    assert not suspects(state(-1, (1, 2)), brokers(broker(2, 40)))


def test_a_new_leader_is_vouched_for_and_followers_keep_what_was_said_of_them():
    known = brokers(broker(1, 50, 50), broker(2, 60), broker(3, 70))
    before = state(2, (1, 2, 3), {1: 20, 3: 30})
    chosen = Elected(leader=BrokerId(2), isr=(BrokerId(1), BrokerId(2), BrokerId(3)))
    assert joined_epochs_of(chosen, before, known) == {1: 20, 2: 60, 3: 30}


def test_all_replicas_of_a_new_partition_are_vouched_for():
    chosen = Elected(leader=BrokerId(1), isr=(BrokerId(1), BrokerId(2)))
    known = brokers(broker(1, 50, 50), broker(2, 60, 60))
    assert joined_epochs_of(chosen, None, known) == {1: 50, 2: 60}


# --- elections ---


def test_a_clean_member_is_preferred_to_a_suspect():
    assert elected({1, 2}, {1}) == Elected(leader=2, isr=(2,))


def test_a_clean_member_that_has_just_come_back_is_preferred_to_a_suspect():
    assert elected({1, 2}, {1}, bounced={1, 2}) == Elected(leader=2, isr=(2,))


def test_a_partition_waits_for_a_member_that_may_return_clean():
    assert elected({1, 3}, {1}, leader=2) == Elected(leader=-1, isr=(1, 2))
    assert elected({1, 3}, {1}) is None, "it is written already"


def test_when_all_came_back_as_suspects_one_leads_alone():
    assert elected({1, 2, 3}, {1, 2}) == Elected(leader=1, isr=(1,))
    assert elected({1, 2, 3}, {1, 2}, bounced={1, 2}) == Elected(leader=1, isr=(1,))


def test_the_only_member_leads_at_once():
    assert elected({1, 2}, {2}, isr=(2,)) == Elected(leader=2, isr=(2,))


def test_with_unclean_election_a_suspect_leads_before_a_replica_that_was_not_in_sync():
    assert elected({1, 3}, {1}, isr=(2, 1), unclean=True) == Elected(leader=1, isr=(1,))


def test_with_unclean_election_a_clean_member_still_comes_first():
    assert elected({1, 2}, {1}, unclean=True) == Elected(leader=2, isr=(2,))


def test_a_suspect_follower_leaves_the_isr_of_a_living_leader():
    assert elected({1, 2}, {2}, leader=1) == Elected(leader=1, isr=(1,))
