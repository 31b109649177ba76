"""The rules of one reassignment, and what the controller makes of them step by step. R-CTL8."""

import pytest

from storage_engine.core.control.cluster_state import PartitionAssignment, Reassignment
from storage_engine.core.control.controller_events import (
    AssignmentsWritten,
    BrokersChanged,
    DropReassignmentRequests,
    ElectionRequested,
    ReassignmentRequested,
    StatesRead,
    TopicDeletionRequested,
    WriteAssignments,
)
from storage_engine.core.control.partition_elections import reassignment_election
from storage_engine.core.control.planned_changes import target_problem
from storage_engine.core.ids import BrokerId
from storage_engine.tests.core.control.controller_bench import (
    TP,
    Driven,
    brokers,
    running,
    state,
    topic,
    with_assignment,
)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def assigned(
    *, replicas: tuple[BrokerId, ...], reassignment: Reassignment | None = None
) -> PartitionAssignment:
    return PartitionAssignment(replicas=replicas, reassignment=reassignment)


OLD, NEW, ALL = ids(1, 2, 3), ids(4, 5, 6), ids(1, 2, 3, 4, 5, 6)
MOVE = Reassignment(original=OLD, target=NEW)


def begun() -> Driven:
    """Six brokers; the first step is written and told."""
    driven = running(live=ALL)
    driven.step(ReassignmentRequested(targets={TP: NEW}))
    (write,) = driven.of(WriteAssignments)
    driven.step(AssignmentsWritten(topic="t", info=applied(driven, write)))
    return driven


def applied(driven: Driven, write: WriteAssignments):
    info = driven.core.topic(write.topic)
    for change in write.changes:
        assert info.assigned(change.partition) == change.expected
        info = with_assignment(info, change.partition, change.wanted)
    return info


def caught_up(driven: Driven) -> Driven:
    """All six are in sync, step 7 and 8 are written."""
    driven.answer()
    version = driven.core.state(TP).partition_epoch + 1
    epoch = driven.core.state(TP).leader_epoch
    driven.step(StatesRead(states={TP: state(1, *ALL, epoch=epoch, version=version)}))
    (seventh,) = driven.writes()
    assert (seventh.state.leader, seventh.state.isr) == (4, ALL)
    driven.answer()
    (eighth,) = driven.writes()
    assert (eighth.state.leader, eighth.state.isr) == (4, NEW)
    return driven


def test_a_move_begins_with_original_and_target():
    assert assigned(replicas=OLD).towards(NEW) == assigned(replicas=ALL, reassignment=MOVE)
    assert assigned(replicas=OLD).towards(ids(2, 1, 4)).replicas == ids(1, 2, 3, 4)
    moving = assigned(replicas=ALL, reassignment=MOVE)
    assert (moving.adding, moving.removing) == (NEW, OLD)
    assert moving.finished() == assigned(replicas=NEW)


def test_another_direction_keeps_who_is_there_until_the_end():
    turned = assigned(replicas=ALL, reassignment=MOVE).towards(ids(1, 7))
    assert turned.replicas == ids(1, 2, 3, 7, 4, 5, 6)
    assert turned.reassignment == Reassignment(original=OLD, target=ids(1, 7))
    assert turned.removing == ids(2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("isr", "live", "leader", "expected"),
    [
        (ids(1, 2, 3, 4, 5), ALL, 1, None),
        (ALL, ALL, 1, (4, ALL)),
        (ALL, ids(1, 2, 3, 5, 6), 1, (5, ALL)),
        (ALL, ALL, 5, (5, NEW)),
        (NEW, ALL, 4, (4, NEW)),
    ],
)
def test_targets_lead_and_stay_alone_once_all_are_in_sync(isr, live, leader, expected):
    elected = reassignment_election(MOVE, BrokerId(leader), isr, live=ALL, candidates=live)
    found = None if elected is None else (elected.leader, elected.isr)
    assert found == expected
    assert elected is None or elected.retires == (elected.isr == NEW)


def test_a_cancelled_one_waits_for_the_living_only():
    back = Reassignment(original=OLD, target=OLD)
    assert back.is_caught_up(ids(1, 4, 5), live=ids(1, 4, 5, 6))
    assert not back.is_caught_up(ids(1, 4, 5), live=ids(1, 2, 4, 5, 6))
    assert not back.is_caught_up(ids(4, 5), live=ids(4, 5, 6))


def test_problems_of_a_target_are_told():
    assert target_problem(NEW, OLD, ALL) is None
    assert target_problem(ids(1, 4), OLD, ids(4)) is None, "a dead broker that holds a replica"
    assert target_problem((), OLD, ALL) == "needs at least one broker"
    assert target_problem(ids(1, 1), OLD, ALL) == "names a broker twice: [1, 1]"
    assert "not alive: 9; alive are [1, 2, 3]" in (target_problem(ids(9), OLD, OLD) or "")


def test_the_first_step_is_told_to_all_six_under_a_new_leader_epoch():
    driven = begun()
    (write,) = driven.writes()
    assert (write.state.leader, write.state.isr) == (1, OLD)
    driven.deliver_all()
    driven.answer()
    told = {d.broker: d.delivery.leadership for d in driven.of_all_deliveries()}
    assert all(told[broker][-1].assigned == ALL for broker in ALL)


def test_old_replicas_are_deleted_only_after_a_write_has_left_them_out():
    driven = caught_up(begun())
    assert not any(d.delivery.stop for d in driven.deliver_all())
    driven.answer_last()
    made = driven.deliver_all()
    assert {d.broker for d in made if d.delivery.stop == (TP,)} == set(OLD)
    told = [item for d in made for item in d.delivery.leadership if d.broker == 4]
    assert told[-1].assigned == NEW, "the leader knows no others any more"
    (write,) = driven.last_of(WriteAssignments)
    assert write.changes[0].wanted == assigned(replicas=NEW)


def test_the_assignment_is_written_last_and_then_the_request_goes():
    driven = caught_up(begun())
    driven.answer()
    assert not driven.of(WriteAssignments), "the old replicas are still there"
    driven.deliver_all()
    (write,) = driven.last_of(WriteAssignments)
    driven.step(AssignmentsWritten(topic="t", info=applied(driven, write)))
    (drop,) = driven.of(DropReassignmentRequests)
    assert drop.requests == {TP: (NEW, None)}
    assert not driven.writes(), "everybody has been told before"


def test_a_deletion_of_old_replicas_is_taken_back_when_they_are_wanted_again():
    driven = caught_up(begun())
    driven.step(ReassignmentRequested(targets={TP: OLD}))
    driven.answer_last()
    (write,) = driven.last_of(WriteAssignments)
    driven.step(AssignmentsWritten(topic="t", info=applied(driven, write)))
    assert driven.core.topic("t").reassignments[0].is_cancellation
    for effect in driven.deliver_all():
        # One that was under way already is followed by the order to begin anew.
        assert not effect.delivery.stop or effect.broker in OLD
    assert not driven.core._deliveries.owes_stop(driven.core._cluster.partition(TP))


def test_a_request_to_go_back_is_not_done_while_the_first_step_is_being_written():
    driven = running(live=ALL)
    driven.step(ReassignmentRequested(targets={TP: NEW}))
    (write,) = driven.of(WriteAssignments)
    driven.step(ReassignmentRequested(targets={TP: OLD}))
    assert not driven.of(DropReassignmentRequests), "where it is now is not known"
    driven.step(AssignmentsWritten(topic="t", info=applied(driven, write)))
    (back,) = driven.of(WriteAssignments)
    assert back.changes[0].wanted.reassignment == Reassignment(original=OLD, target=OLD)


def test_a_dead_old_broker_is_not_waited_for():
    driven = caught_up(begun())
    driven.answer()
    driven.step(BrokersChanged(brokers=brokers(4, 5, 6)))
    assert driven.last_of(WriteAssignments)[0].changes[0].wanted == assigned(replicas=NEW)


def test_nobody_else_is_preferred_once_targets_are_in_sync():
    driven = caught_up(begun())
    driven.step(ElectionRequested(partitions=(TP,)))
    driven.answer_last()
    assert driven.core.preferred_replica(TP) == 4
    assert driven.core.state(TP).leader == 4


def test_a_topic_in_deletion_is_not_moved():
    driven = running(live=ALL)
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.step(ReassignmentRequested(targets={TP: NEW}))
    (drop,) = driven.of(DropReassignmentRequests)
    assert drop.requests == {TP: (NEW, "there is no such partition")}
    assert not driven.of(WriteAssignments)


def test_a_new_controller_goes_on_from_what_it_reads():
    info = with_assignment(topic(), 0, assigned(replicas=ALL, reassignment=MOVE))
    driven = running(live=ALL, info=info, known=state(4, *NEW))
    driven.answer_last()
    assert driven.core.state(TP).isr == NEW
    driven.deliver_all()
    assert driven.last_of(WriteAssignments)[0].changes[0].wanted == assigned(replicas=NEW)
