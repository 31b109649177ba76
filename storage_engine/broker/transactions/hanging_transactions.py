"""Ends transactions in partitions led here that no coordinator knows: nobody else would, and
readers of committed records would wait for ever. A loss of power of all replicas can leave one, of
the coordinators' log or of the partition: what was not flushed is gone, and with it the
transaction, or its marker.

A batch names its producer and not its transactional id, so the coordinators of all partitions of
the state log are asked. Each answers for its partition as its leader, with enough replicas in sync,
and after all that it knows is replicated. A transaction is ended when all of them say in one round
that they have none of that producer with this partition, and it is still the one that they were
asked about. Then nobody can commit it any more:

- It was enlisted before its first batch was appended here, by a record that was replicated. A
  coordinator without it has ended it, with a marker that all replicas in sync here had, or has
  lost it.
- A commit needs that record: a coordinator without it refuses EndTxn and CommitBatch.
- A transaction that begins after the question has another first offset here, and one that goes on
  here under the same epoch another last offset.

Where the lost record was the marker of a commit, its rows are lost with it, as all that was not
flushed may be. They are not committed here: under one epoch they may also be rows of an older,
aborted transaction. Kafka leaves this to an operator (KIP-664, `kafka-transactions`).
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

from storage_engine.broker.coordinators.state_topic import StateTopic
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.transactions.coordinator_questions import (
    CoordinatorQuestions,
    Outcomes,
    Transaction,
)
from storage_engine.broker.transactions.marker_writes import MarkerTarget, MarkerWrites
from storage_engine.broker.unexpected import FAILED, guarded
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock, Scheduler
from storage_engine.core.retained.producer_table import NO_COORDINATOR_EPOCH, TransactionMarker
from storage_engine.core.transactions.verification_guard import search_name
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)

log = logging.getLogger(__name__)

PARTITIONS_A_TURN = 1_000
"""The most partitions that are checked in one turn of the event loop."""
ASKED_AT_ONCE = 20
"""The most transactions of one round of questions; each leads to one question for every partition
of the state log."""
LONGEST_PAUSE = 30
"""The longest pause between two questions about one transaction, in intervals."""

NOTHING_WRITTEN = -1

_Key = tuple[TopicPartition, int]
"""A partition and a producer id."""


@dataclass(slots=True)
class _Open:
    """A transaction that is open here, as this leader has seen it."""

    key: _Key
    first_offset: int
    leader_epoch: int
    ask_ms: int
    pause_ms: int
    asked_with: int = NOTHING_WRITTEN
    """The last offset of the producer here when the question was asked."""

    def is_in(self, partition: HostedPartition | None) -> bool:
        """Return True while this broker leads on, and the transaction is open."""
        return (
            partition is not None
            and partition.leader is not None
            and partition.leader_epoch == self.leader_epoch
            and _ongoing(partition).get(self.key[1]) == self.first_offset
        )


class HangingTransactions:
    """The transactions of all partitions that this broker leads."""

    def __init__(
        self,
        topic: StateTopic,
        questions: CoordinatorQuestions,
        *,
        replicas: ReplicaManager,
        writes: MarkerWrites,
        scheduler: Scheduler,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        """`interval_ms` lies between two checks; a transaction is asked about when two in a row
        have found it, and then less and less often."""
        self._topic = topic
        self._questions = questions
        self._replicas = replicas
        self._writes = writes
        self._scheduler = scheduler
        self._clock = clock
        self._interval_ms = interval_ms
        self._open: dict[_Key, _Open] = {}
        self._closed = False
        self.ended = 0  # by this broker

    def start(self) -> None:
        self._scheduler.call_later(self._interval_ms, self._look)

    def close(self) -> None:
        self._closed = True

    # --- checks ---

    def _look(self) -> None:
        if not self._closed:
            self._look_on(iter(list(self._replicas)), {})

    def _look_on(self, left: Iterator[HostedPartition], found: dict[_Key, _Open]) -> None:
        """Check the next partitions, and the others in later turns."""
        if self._closed:
            return
        some = list(islice(left, PARTITIONS_A_TURN))
        for partition in some:
            if partition.leader is not None and _ongoing(partition):
                self._note(partition, found)
        if some:
            self._scheduler.call_soon(partial(self._look_on, left, found))
            return
        self._open = found
        now_ms = self._clock.monotonic_ms()
        self._ask_next(iter([each for each in found.values() if each.ask_ms <= now_ms]))

    def _note(self, partition: HostedPartition, found: dict[_Key, _Open]) -> None:
        for producer_id, first_offset in _ongoing(partition).items():
            key = partition.topic_partition, producer_id
            known = self._open.get(key)
            if known is None or not known.is_in(partition):
                ask_ms = self._clock.monotonic_ms() + self._interval_ms
                known = _Open(
                    key, first_offset, partition.leader_epoch, ask_ms, pause_ms=self._interval_ms
                )
            found[key] = known

    # --- questions ---

    def _ask_next(self, due: Iterator[_Open]) -> None:
        """Ask about the next transactions; when none is left, check again later."""
        if self._closed:
            return
        some = list(islice(due, ASKED_AT_ONCE))
        asks = some and guarded("hanging transactions", self._ask, some, due) is not FAILED
        if not asks:
            self._scheduler.call_later(self._interval_ms, self._look)

    def _ask(self, some: list[_Open], due: Iterator[_Open]) -> None:
        coordinators = self._coordinators()
        partitions_of: dict[int, list[TopicPartition]] = {}
        for each in some:
            tp, producer_id = each.key
            each.asked_with = self._last_offset(tp, producer_id)
            partitions_of.setdefault(producer_id, []).append(tp)
        nobody: Counter[_Key] = Counter()
        known: set[_Key] = set()
        left = len(coordinators)

        def on_outcomes(outcomes: list[Outcomes] | str) -> None:
            nonlocal left
            left -= 1
            if not isinstance(outcomes, str):
                # By position: all producers have the coordinator's name as transactional id.
                for place, codes in enumerate(outcomes):
                    producer_id = list(partitions_of)[place % len(partitions_of)]
                    for tp, code in codes.items():
                        if code is ErrorCode.INVALID_TXN_STATE:
                            nobody[tp, producer_id] += 1
                        elif code is ErrorCode.NONE:
                            known.add((tp, producer_id))
            if not left:
                guarded("hanging transactions", self._settle, some, nobody, known)
                self._scheduler.call_soon(partial(self._ask_next, due))

        if not coordinators:
            self._scheduler.call_soon(partial(self._ask_next, due))
        for coordinator, numbers in coordinators.items():
            self._questions.ask(coordinator, _request(numbers, partitions_of), on_outcomes)

    def _coordinators(self) -> dict[BrokerInfo, list[int]]:
        """The partitions of the state log by leader; empty while some have no leader."""
        found: dict[BrokerInfo, list[int]] = {}
        for number in range(self._topic.partitions or 0):
            coordinator = self._topic.coordinator_of(search_name(number))
            if coordinator is None:
                return {}
            found.setdefault(coordinator, []).append(number)
        return found

    def _settle(self, some: Iterable[_Open], nobody: Counter[_Key], known: set[_Key]) -> None:
        now_ms = self._clock.monotonic_ms()
        for each in some:
            if nobody[each.key] == self._topic.partitions:
                self._end(each)
            elif each.key in known:
                each.pause_ms = min(2 * each.pause_ms, LONGEST_PAUSE * self._interval_ms)
                each.ask_ms = now_ms + each.pause_ms

    def _end(self, hanging: _Open) -> None:
        tp, producer_id = hanging.key
        partition = self._replicas.get(tp)
        if partition is None or not hanging.is_in(partition):
            return
        if self._last_offset(tp, producer_id) != hanging.asked_with:
            # The transaction goes on: its coordinator may know it by now.
            return
        entry = partition.log.producer_state.get(producer_id)
        epoch, coordinator_epoch = 0, NO_COORDINATOR_EPOCH
        if entry is not None:
            epoch, coordinator_epoch = entry.epoch, entry.coordinator_epoch
        log.warning(
            "transaction aborted, no coordinator knows it partition=%s producer_id=%d epoch=%d"
            " first_offset=%d: the log of a coordinator, or of the partition, has lost its end",
            tp, producer_id, epoch, hanging.first_offset,
        )  # fmt: skip
        self.ended += 1
        marker = TransactionMarker(commits=False, coordinator_epoch=coordinator_epoch)
        # A refused marker is tried again after the next check.
        self._writes.write([MarkerTarget(producer_id, epoch, marker, tp)], lambda _codes: None)

    def _last_offset(self, tp: TopicPartition, producer_id: int) -> int:
        partition = self._replicas.get(tp)
        entry = None if partition is None else partition.log.producer_state.get(producer_id)
        return entry.batches[-1].last_offset if entry and entry.batches else NOTHING_WRITTEN


def _ongoing(partition: HostedPartition) -> Mapping[int, int]:
    return partition.log.producer_state.transactions.ongoing


def _request(
    numbers: Iterable[int], partitions_of: Mapping[int, list[TopicPartition]]
) -> AddPartitionsToTxnRequest:
    """The question whether these partitions of the state log have the producers' transactions."""
    topics_of = {}
    for producer_id, partitions in partitions_of.items():
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        topics_of[producer_id] = [
            AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in topics.items()
        ]
    return AddPartitionsToTxnRequest(
        transactions=[
            Transaction(
                transactional_id=search_name(number),
                producer_id=producer_id,
                producer_epoch=0,
                verify_only=True,
                topics=topics,
            )
            for number in numbers
            for producer_id, topics in topics_of.items()
        ]
    )
