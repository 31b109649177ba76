"""The states of very many partitions are written over several turns of the loop. R-CTL2."""

import json
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

from storage_engine.broker.controller.acting_controller import (
    WRITES_PER_TURN,
    ActingController,
    ControllerSettings,
)
from storage_engine.core.control.controller_events import (
    BrokersChanged,
    Loaded,
    StatesRead,
    TopicsRead,
)
from storage_engine.core.ids import BrokerId, ControllerEpoch, TopicPartition
from storage_engine.core.ports import ZkOpKind, ZkReply, ZkStatus
from storage_engine.tests.core.control.controller_bench import brokers, state, topic

COUNT = 3 * WRITES_PER_TURN


class Zookeeper:
    """Accepts every multi, and knows which partitions were written, and when."""

    def __init__(self):
        self.turn = 0
        self.written: list[tuple[int, str]] = []
        self.operations = []

    def multi(self, operations, on_reply):
        self.operations += operations[1:]
        self.written += [(self.turn, op.path) for op in operations[1:]]
        on_reply(ZkReply(status=ZkStatus.OK))

    def create(self, path, data, on_reply, **options):
        on_reply(ZkReply(status=ZkStatus.OK))

    def written_in(self, turn):
        return sum(1 for each, _ in self.written if each == turn)


class Turns:
    """A scheduler whose next turn comes when the test says so."""

    def __init__(self, zookeeper):
        self._zookeeper = zookeeper
        self.due = []

    def call_later(self, delay_ms, callback):
        if delay_ms == 0:
            self.due.append(callback)

    def next(self):
        self._zookeeper.turn += 1
        due, self.due = self.due, []
        for callback in due:
            callback()


SILENT = SimpleNamespace(request=lambda *_, **__: None, disconnect=lambda *_: None)
"""Sends nothing, and nobody answers."""


def acting_controller(transport=SILENT):
    zookeeper = Zookeeper()
    turns = Turns(zookeeper)
    acting = ActingController(
        ControllerSettings(
            broker_id=BrokerId(1),
            delete_topic_enable=True,
            unclean_default=lambda: False,
            balance_check_ms=None,
            balance_percentage=10,
        ),
        controller_epoch=ControllerEpoch(9),
        epoch_znode_version=1,
        metadata_store=zookeeper,
        transport=transport,
        scheduler=turns,
        resign=lambda: None,
        give_up=lambda: None,
    )
    acting.submit(
        Loaded(
            brokers=brokers(1, 2, 3),
            topics={"t": topic("t", *[(3, 1, 2)] * COUNT)},
            states={TopicPartition("t", p): state(3, 1, 2, 3) for p in range(COUNT)},
        )
    )
    assert zookeeper.written == []
    return acting, zookeeper, turns


def test_a_turn_writes_no_more_than_its_share_and_all_are_written_in_the_end():
    acting, zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    assert zookeeper.written_in(0) == WRITES_PER_TURN
    while turns.due:
        turns.next()
    assert [zookeeper.written_in(turn) for turn in (1, 2)] == [WRITES_PER_TURN] * 2
    assert len({path for _, path in zookeeper.written}) == len(zookeeper.written) == COUNT
    assert {known.leader for known in acting.core.states().values()} == {1}


def test_a_controller_that_is_over_writes_nothing_more():
    acting, zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    acting.close()
    turns.next()
    assert len(zookeeper.written) == WRITES_PER_TURN


def test_a_write_that_waited_is_not_made_for_a_topic_that_was_made_anew():
    """The node of the new topic may have the very version that the old write expects."""
    acting, zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    assert {op.kind for op in zookeeper.operations} == {ZkOpKind.SET}
    another = replace(topic("t", *[(1, 2)] * COUNT), topic_id=UUID(int=2))
    del zookeeper.operations[:]
    acting.submit(TopicsRead(topics={"t": another}))
    while turns.due:
        turns.next()
    assert zookeeper.operations
    assert ZkOpKind.SET not in {op.kind for op in zookeeper.operations}
    leaders = {known.leader_epoch for known in acting.core.states().values()}
    assert leaders == {0}, "the states of the new topic, not those of the old one"


def test_a_creation_that_waited_is_not_made_for_a_topic_that_was_made_anew():
    """Neither topic has a node yet: only the decision tells the two writes apart."""
    acting, zookeeper, turns = acting_controller()
    first = replace(topic("u", *[(1, 2)] * COUNT), topic_id=UUID(int=2))
    acting.submit(TopicsRead(topics={"u": first}))
    del zookeeper.operations[:]
    another = replace(topic("u", *[(3,)] * COUNT), topic_id=UUID(int=3))
    acting.submit(TopicsRead(topics={"u": another}))
    while turns.due:
        turns.next()
    written = [op for op in zookeeper.operations if op.path.endswith("/state")]
    assert written
    assert {json.loads(op.data)["leader"] for op in written} == {3}


def test_a_write_that_waited_while_a_newer_state_was_read_counts_as_refused():
    acting, zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    last = TopicPartition("t", COUNT - 1)
    newer = state(3, 1, 2, version=6)
    acting.submit(StatesRead(states={last: newer}))
    while turns.due:
        turns.next()
    assert not [path for _, path in zookeeper.written if path.endswith(f"/{COUNT - 1}/state")]
    assert acting.core.state(last) == newer
    assert acting.core.refusals(last) == 1, "and it is read again, then written"


def test_long_deliveries_are_sent_in_turns_of_their_own():
    sent = []
    transport = SimpleNamespace(
        request=lambda endpoint, *_, **__: sent.append(endpoint.broker_id),
        disconnect=lambda *_: None,
    )
    acting, _zookeeper, turns = acting_controller(transport)
    assert sent == []
    told = []
    while turns.due:
        turns.next()
        told.append(sorted(set(sent)))
    assert told == [[1], [1, 2], [1, 2, 3]]
    acting.close()
