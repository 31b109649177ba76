"""A partition waits for its own refused writes, not for those of others. Source: R-CTL2,
R-CTL10."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from storage_engine.broker.controller.state_reader import (
    CONFLICT_PAUSE_MAX_MS,
    CONFLICT_PAUSE_MS,
    by_pause,
)
from storage_engine.core.control.controller_events import (
    StatesRead,
    StatesWritten,
    TopicDeleted,
    TopicsRead,
    WriteOutcome,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.core.control.controller_bench import Driven, running, state
from storage_engine.tests.core.control.controller_bench import topic as topic_of

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
MANY = 12


def written(driven: Driven, outcome: WriteOutcome, *, version: int = 6) -> None:
    made = state(1, 1, 2, 3, version=version)
    driven.step(StatesWritten(outcomes={TP: (outcome, made)}))


def refused(times: int = MANY, outcome: WriteOutcome = WriteOutcome.CONFLICT) -> Driven:
    driven = running(info=topic_of("t", (1, 2, 3), (2, 3, 1)))
    for _ in range(times):
        written(driven, outcome)
    return driven


def pause_ms(driven: Driven) -> int:
    (pause,) = by_pause(driven.core, [TP])
    return pause


def test_the_pause_is_doubled_with_each_refusal():
    pauses = [pause_ms(refused(times)) for times in (0, 1, 2, 3, MANY, 1000)]
    assert pauses == [20, 20, 40, 80, CONFLICT_PAUSE_MAX_MS, CONFLICT_PAUSE_MAX_MS]


def test_each_partition_waits_for_its_own_pause():
    assert by_pause(refused().core, [TP, OTHER]) == {
        CONFLICT_PAUSE_MAX_MS: (TP,),
        CONFLICT_PAUSE_MS: (OTHER,),
    }


def test_an_answer_that_never_came_is_no_refusal():
    assert pause_ms(refused(outcome=WriteOutcome.UNKNOWN)) == CONFLICT_PAUSE_MS


def test_an_accepted_write_ends_it():
    driven = refused()
    written(driven, WriteOutcome.ACCEPTED)
    assert pause_ms(driven) == CONFLICT_PAUSE_MS


def test_a_newer_state_that_was_read_ends_it():
    driven = refused()
    driven.step(StatesRead(states={TP: state(1, 1, 2, 3)}))
    assert pause_ms(driven) == CONFLICT_PAUSE_MAX_MS
    driven.step(StatesRead(states={TP: state(1, 1, 2, version=6)}))
    assert pause_ms(driven) == CONFLICT_PAUSE_MS
    written(driven, WriteOutcome.CONFLICT)
    assert pause_ms(driven) == CONFLICT_PAUSE_MS


def test_a_deleted_topic_leaves_nothing_to_a_later_one_of_its_name():
    driven = refused()
    driven.step(TopicDeleted(topic="t"))
    written(driven, WriteOutcome.CONFLICT)
    driven.step(TopicsRead(topics={"t": topic_of("t", (1, 2, 3), (2, 3, 1))}))
    driven.step(StatesRead(states={TP: state(1, 1, 2, 3)}))
    assert pause_ms(driven) == CONFLICT_PAUSE_MS


def test_a_topic_made_anew_by_others_begins_anew():
    driven = refused()
    anew = replace(topic_of("t", (1, 2, 3), (2, 3, 1)), topic_id=UUID(int=2))
    driven.step(TopicsRead(topics={"t": anew}))
    driven.step(StatesRead(states={TP: state(1, 1, 2, 3)}))
    assert pause_ms(driven) == CONFLICT_PAUSE_MS


def test_nothing_is_remembered_of_a_topic_that_was_deleted(topic):
    acting = topic.controller.parts.cluster.controller.acting
    known: Any = acting.core.state(TP)
    acting._states_written({TP: (WriteOutcome.CONFLICT, known)})
    assert acting.core.refusals(TP) == 1
    topic.answer(topic.delete_topic("t"))
    assert acting.core.topic("t") is None
    assert acting.core.refusals(TP) == 0


def test_a_failover_whose_answer_is_lost_does_not_wait_for_a_partition_that_was_refused(cluster):
    """The controller is cut off just when ZooKeeper has carried out the writes of both."""
    partitions = [TopicPartition("live", 0), TopicPartition("refused", 0)]
    controller = cluster.controller
    assert controller is not None
    leader = next(b for b in cluster.brokers if b is not controller)
    others = [b.id for b in cluster.brokers if b is not leader]
    for tp in partitions:
        assert cluster.create_topic(tp.topic).error_code == 0
        cluster.answer(cluster.reassign(tp, [leader.id, *others]))
        cluster.wait_in_sync(tp, 1, 2, 3)
        cluster.loop.run_for(3000)
        cluster.answer(cluster.elect_preferred(tp))
        assert cluster.state(tp).leader == leader.id
    cluster.loop.run_for(3000)
    acting = controller.parts.cluster.controller.acting
    known: Any = acting.core.state(partitions[1])
    for _ in range(MANY):
        acting._states_written({partitions[1]: (WriteOutcome.CONFLICT, known)})
    cluster.loop.run_for(6000)
    zookeeper: Any = cluster.zookeeper
    multi = zookeeper.multi
    lost: list[int] = []

    def losing_the_answer(operations, session_id):
        reply = multi(operations, session_id)
        if not lost and any("/live/" in op.path for op in operations):
            lost.append(sum(op.path.endswith("/state") for op in operations))
            controller.session.cut_off(arrives=True)
            cluster.loop.call_later(100, controller.session.reconnect)
        return reply

    zookeeper.multi = losing_the_answer
    leader.kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: bool(lost))
    assert lost == [2]

    def led() -> bool:
        found = [b.replicas.get(partitions[0]) for b in cluster.brokers if b.up]
        return any(partition is not None and partition.leader is not None for partition in found)

    cluster.loop.run_until(led, limit_ms=2000)
