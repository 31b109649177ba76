"""The elections of very many partitions take several turns of the loop, each by what is known
then: whatever comes between two turns counts. R-CTL2, R-CTL4, R-CTL6, R-CTL7."""

from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

from storage_engine.broker.controller.acting_controller import (
    LONG_DELIVERY,
    ActingController,
    ControllerSettings,
)
from storage_engine.core.control.controller import ELECTIONS_PER_TURN
from storage_engine.core.control.controller_events import (
    BrokersChanged,
    ElectionRequested,
    Loaded,
    StatesRead,
    TopicDeletionRequested,
    TopicsRead,
)
from storage_engine.core.ids import BrokerId, ControllerEpoch, TopicPartition
from storage_engine.core.ports import ZkReply, ZkStat, ZkStatus
from storage_engine.tests.core.control.controller_bench import brokers, state, topic
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode

COUNT = 3 * ELECTIONS_PER_TURN


class Zookeeper:
    """Accepts every multi, and knows which partitions were written, and when."""

    def __init__(self):
        self.turn = 0
        self.written: list[tuple[int, str]] = []
        self.reads = []

    def get(self, path, on_reply, watch=None):
        self.reads.append((path, on_reply))

    def answer_reads(self, data, stat):
        """All that are under way."""
        reads, self.reads = self.reads, []
        for _, on_reply in reads:
            on_reply(ZkReply(status=ZkStatus.OK, data=data, stat=stat))
        return len(reads)

    def multi(self, operations, on_reply):
        self.written += [(self.turn, op.path) for op in operations[1:]]
        on_reply(ZkReply(status=ZkStatus.OK))

    def create(self, path, data, on_reply, **options):
        on_reply(ZkReply(status=ZkStatus.OK))

    def written_of(self, partition):
        return sum(1 for _, path in self.written if path.endswith(f"/{partition}/state"))

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

    def all(self):
        while self.due:
            self.next()


LED_BY_3 = state(3, 1, 2, 3)

SILENT = SimpleNamespace(request=lambda *_, **__: None, disconnect=lambda *_: None)
"""Sends nothing, and nobody answers."""


def acting_controller(known=LED_BY_3, *, count=COUNT, transport=SILENT):
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
            topics={"t": topic("t", *[(3, 1, 2)] * count)},
            states={TopicPartition("t", p): known for p in range(count)},
        )
    )
    while turns.due and transport is SILENT:
        turns.next()
    assert zookeeper.written == []
    zookeeper.turn = 0
    return acting, zookeeper, turns


def leaders(acting):
    return {int(known.leader) for known in acting.core.states().values()}


def test_a_turn_elects_and_writes_no_more_than_its_share_and_all_are_written_in_the_end():
    acting, zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    assert zookeeper.written_in(0) == ELECTIONS_PER_TURN
    turns.all()
    assert [zookeeper.written_in(turn) for turn in (1, 2)] == [ELECTIONS_PER_TURN] * 2
    assert len({path for _, path in zookeeper.written}) == len(zookeeper.written) == COUNT
    assert leaders(acting) == {1}


def test_what_comes_before_the_next_turn_holds_none_of_its_elections():
    acting, zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    for partition in range(COUNT):
        newer = state(3, 1, 2, 3, version=6)
        acting.submit(StatesRead(states={TopicPartition("t", partition): newer}))
    assert zookeeper.written_in(0) == ELECTIONS_PER_TURN
    turns.all()
    assert leaders(acting) == {1}


@pytest.mark.parametrize(
    "end",
    [
        ActingController.close,
        lambda acting: acting.submit(TopicDeletionRequested(topics=("t",))),
    ],
    ids=["controller is over", "topic is to be deleted"],
)
def test_what_ends_between_two_turns_has_no_more_elections(end):
    acting, zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    end(acting)
    turns.all()
    assert len(zookeeper.written) == ELECTIONS_PER_TURN


def test_a_broker_that_dies_between_two_turns_is_elected_no_more_and_is_replaced():
    acting, zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    assert leaders(acting) == {3, 1}
    acting.submit(BrokersChanged(brokers=brokers(2)))
    turns.all()
    assert leaders(acting) == {2}
    assert zookeeper.written_of(0) == 2, "broker 1 was elected, and replaced"
    assert zookeeper.written_of(COUNT - 1) == 1, "its election came when broker 1 was dead"


def test_a_broker_that_is_back_between_two_turns_counts_as_restarted():
    """It does not go on to lead under an old leader epoch: other brokers take over."""
    acting, zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    acting.submit(BrokersChanged(brokers=brokers(1, 2, 3, b3=7)))
    turns.all()
    assert leaders(acting) == {1}
    assert zookeeper.written_of(COUNT - 1) == 1
    known = acting.core.state(TopicPartition("t", COUNT - 1))
    assert known.isr == (1, 2), "it has to be let in again"


def test_a_topic_that_is_made_anew_between_two_turns_is_elected_for_as_a_new_one():
    acting, _zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    another = replace(topic("t", *[(1, 2)] * COUNT), topic_id=UUID(int=2))
    acting.submit(TopicsRead(topics={"t": another}))
    turns.all()
    leader_epochs = {known.leader_epoch for known in acting.core.states().values()}
    assert leader_epochs == {0}, "the states of the new topic, not those of the old one"


def test_a_state_that_is_read_between_two_turns_is_the_one_that_the_election_goes_by():
    acting, _zookeeper, turns = acting_controller()
    acting.submit(BrokersChanged(brokers=brokers(1, 2)))
    last = TopicPartition("t", COUNT - 1)
    acting.submit(StatesRead(states={last: state(3, 3, 2, version=6)}))
    turns.all()
    known = acting.core.state(last)
    assert (known.leader, known.isr, known.partition_epoch) == (2, (2,), 7)


def test_a_topic_that_is_made_anew_while_states_are_read_gets_none_of_the_one_before_it():
    """They have higher leader epochs and versions: its brokers would take them for newer, with an
    ISR that ZooKeeper does not know."""
    acting, zookeeper, turns = acting_controller()
    old = PartitionStateZNode(
        leader=BrokerId(3), leader_epoch=40, isr=(3, 2), controller_epoch=9, joined_epochs={}
    ).encode()
    elected: list[object] = []
    asked = [TopicPartition("t", partition) for partition in range(COUNT)]
    acting.elect(asked, elected.append, unclean=False)
    assert zookeeper.answer_reads(old, ZkStat(version=70, czxid=1)) < COUNT
    another = replace(topic("t", *[(1, 2)] * COUNT), topic_id=UUID(int=2))
    acting.submit(TopicsRead(topics={"t": another}))
    turns.all()
    new = PartitionStateZNode(
        leader=BrokerId(1), leader_epoch=0, isr=(1, 2), controller_epoch=9, joined_epochs={}
    ).encode()
    while zookeeper.answer_reads(new, ZkStat(version=0, czxid=2)):
        pass
    assert {known.leader_epoch for known in acting.core.states().values()} == {0}
    assert acting.core.state(TopicPartition("t", 0)).isr == (1, 2)


def test_what_was_asked_for_is_settled_only_when_its_turn_has_come():
    """So whoever asked is not told of the outcome before there is one."""
    asked = tuple(TopicPartition("t", p) for p in range(COUNT))
    acting, _zookeeper, turns = acting_controller(state(1, 1, 2, 3))
    acting.submit(ElectionRequested(partitions=asked))
    settled = [sum(map(acting.core.is_settled, asked))]
    while turns.due:
        turns.next()
        settled.append(sum(map(acting.core.is_settled, asked)))
    assert settled[:3] == [0] * 3, "each is looked at once more after its write"
    assert settled[-1] == COUNT
    assert leaders(acting) == {3}


def test_long_deliveries_are_sent_in_turns_of_their_own():
    sent = []
    transport = SimpleNamespace(
        request=lambda endpoint, *_, **__: sent.append(endpoint.broker_id),
        disconnect=lambda *_: None,
    )
    acting, _zookeeper, turns = acting_controller(count=LONG_DELIVERY, transport=transport)
    assert sent == []
    told = []
    while turns.due:
        turns.next()
        told.append(sorted(set(sent)))
    assert told[-3:] == [[], [1, 2], [1, 2, 3]], "what all are told alike takes two turns to encode"
    assert not any(told[:-3]), "while elections are held"
    acting.close()
