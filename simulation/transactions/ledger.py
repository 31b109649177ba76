"""The outcome of every transaction, by what is committed in the logs of its partitions, and the
check that its client and readers agree with it.

A transaction has one outcome, that of the first evidence: the answer to its client, or a marker in
any partition. All later evidence has to agree. There is no guarantee for records in a partition
whose replicas all lost their power, nor for a transaction whose coordinator's log did. Source:
KIP-98, KIP-890, R-SPARK2.
"""

from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.checks.copies import BatchNote
from simulation.checks.ledger import InvariantViolation, PartitionRecord
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_table import is_single_use
from storage_engine.protocol.records.record_batch import read_header

Key = tuple[int, int, int, int]
"""The producer id, epoch, first sequence and checksum of a batch: no two batches of a run share
them."""


OnWon = Callable[["MicroBatch", "frozenset[ObservedTransaction]"], None]
"""Called once with a micro-batch that is committed, and the members that were committed with it."""


class AnswerTimes(NamedTuple):
    """The times of a request and of its answer, and whether the answering broker led the
    coordinator's partition all the time."""

    sent_ms: int
    answered_ms: int
    is_of_leader: bool


@dataclass(slots=True, eq=False)
class MicroBatch:
    """One micro-batch of a query."""

    query: str
    number: int
    winners: "frozenset[ObservedTransaction] | None" = None
    """The members that were named together in the request that committed it."""
    is_known: bool = False
    """True when a client knows that it is committed."""
    requests: "list[frozenset[ObservedTransaction]]" = field(default_factory=list)
    touches: list[tuple[int, int]] = field(default_factory=list)
    """The times of requests, and of their answers from the valid coordinator, that keep its members
    alive."""

    def touched(self, times: AnswerTimes) -> None:
        if times.is_of_leader:
            self.touches.append((times.sent_ms, times.answered_ms))

    def alive_until(self, since_ms: int, timeout_ms: int) -> int:
        """Return the time before which a member, alive then, can't have timed out."""
        end_ms = since_ms + timeout_ms
        while later := [s for s, answered in self.touches if answered < end_ms < s + timeout_ms]:
            end_ms = max(later) + timeout_ms
        return end_ms

    def __str__(self) -> str:
        return f"batch {self.number} of {self.query}"


@dataclass(slots=True, eq=False)
class ObservedTransaction:
    """One transaction, from its client's point of view."""

    name: str
    state_partition: TopicPartition
    """The partition of its coordinator."""
    batch: MicroBatch | None = None
    """The micro-batch of a task attempt."""
    sent: dict[TopicPartition, list[Key]] = field(default_factory=dict)
    """The batches in the order of their sequences."""
    asked: bool = False
    """True when a commit was requested."""
    is_given_up: bool = False
    """True when an abort of it as a member was requested."""
    joined_ms: int = -1
    """The time of the request with which a member joined."""
    outcome: bool | None = None
    told_by: str = ""
    ended: set[TopicPartition] = field(default_factory=set)
    """The partitions where it has data and its marker is committed."""

    def note_sent(self, tp: TopicPartition, batch: memoryview) -> Key:
        header = read_header(batch)
        key = header.producer_id, header.producer_epoch, header.base_sequence, header.crc
        self.sent.setdefault(tp, []).append(key)
        return key


@dataclass(slots=True, eq=False)
class _Part:
    """The data of a transaction in one partition."""

    transaction: ObservedTransaction
    first: int
    last: int
    keys: list[Key]
    outcome: bool | None = None


class _View:
    """The committed content of one partition."""

    def __init__(self) -> None:
        self.open: dict[int, _Part] = {}
        """The open transactions by producer id."""
        self.parts: dict[int, _Part] = {}
        """The transactions by the base offset of each batch."""
        self.fences: dict[int, int] = {}
        """The epoch of each producer id's newest marker."""
        self.spans: dict[MicroBatch, tuple[int, int]] = {}
        """The first and last committed offset of each micro-batch."""
        self.stable: list[int] = []
        """All last stable offsets that a leader had, ascending."""

    def check_appears_whole(
        self, tp: TopicPartition, batch: MicroBatch, span: tuple[int, int], stable: list[int]
    ) -> None:
        """Check that no reader could see a part of it, unless the transaction of another client was
        open from there on."""
        first, last = span
        for offset in stable[bisect_right(stable, first) : bisect_right(stable, last)]:
            there = self.parts.get(offset)
            if there is None or there.first != offset or there.transaction.batch is batch:
                raise InvariantViolation(
                    "a micro-batch appears whole",
                    f"{tp} has {batch} at {first}..{last}, and was readable up to {offset}",
                )


class TransactionLedger:
    """The transactions of one run."""

    def __init__(self, record: Callable[[TopicPartition], PartitionRecord]) -> None:
        self._record = record
        self.on_won: OnWon | None = None
        """Called once for each micro-batch, with its members."""
        self._views: dict[TopicPartition, _View] = {}
        self._by_key: dict[tuple[TopicPartition, Key], ObservedTransaction] = {}
        self._stable: dict[tuple[str, TopicPartition, int], int] = {}
        """The last stable offset by observer, partition and leader epoch."""
        self.transactions: list[ObservedTransaction] = []
        self.batches: dict[tuple[str, int], MicroBatch] = {}
        self._moving: dict[str, list[MicroBatch]] = {}
        """By query, the batches whose commits move origins, or may do so."""

    def begin(
        self, name: str, state_partition: TopicPartition, batch: MicroBatch | None = None
    ) -> ObservedTransaction:
        transaction = ObservedTransaction(name, state_partition, batch)
        self.transactions.append(transaction)
        return transaction

    def batch(self, query: str, number: int) -> MicroBatch:
        return self.batches.setdefault((query, number), MicroBatch(query, number))

    def sends(
        self, transaction: ObservedTransaction, tp: TopicPartition, batch: memoryview
    ) -> None:
        """Record a batch that is about to be sent for the first time."""
        self._by_key[tp, transaction.note_sent(tp, batch)] = transaction

    def sends_offsets(
        self, transaction: ObservedTransaction, tp: TopicPartition, note: BatchNote
    ) -> None:
        """Record the batch that the group's coordinator has made of the transaction's offsets."""
        self._by_key[tp, (*note.producer, note.crc)] = transaction

    def note_moving(self, batch: MicroBatch) -> None:
        """Record a driver's request to commit the batch, with origins."""
        self._moving.setdefault(batch.query, []).append(batch)

    def is_void(self, transaction: ObservedTransaction) -> bool:
        """Return True when its coordinator's log may have lost committed records."""
        return self._record(transaction.state_partition).unclean

    def record_answer(self, transaction: ObservedTransaction, *, commits: bool) -> None:
        """Record the outcome that its client was answered."""
        self._decide(transaction, commits, "its producer was told so")

    def check_replay(self, transaction: ObservedTransaction, api: str) -> None:
        """Check a request about a batch that was answered with OK: no client may have known, when
        it was sent, that the batch is committed."""
        if not self.is_void(transaction):
            raise InvariantViolation(
                "a replay is told that its batch is committed",
                f"{transaction.batch} was committed when {api} was sent, and {api} succeeded",
            )

    def check_loss(
        self,
        batch: MicroBatch,
        members: frozenset[ObservedTransaction],
        times: AnswerTimes,
        *,
        timeout_ms: int,
        has_origins: bool,
    ) -> None:
        """Check a driver's answer that a member is lost. It may be, if it has timed out, if it was
        given up, or if another query may have copied the same rows."""
        if not times.is_of_leader or any(self.is_void(each) for each in members):
            return
        if any(each.is_given_up for each in members):
            return
        if has_origins and any(query != batch.query for query in self._moving):
            return
        until_ms = min(batch.alive_until(each.joined_ms, timeout_ms) for each in members)
        if times.answered_ms < until_ms:
            raise InvariantViolation(
                "a member is lost to its timeout, or because somebody gives it up",
                f"{batch} by {_names(members)}: lost at {times.answered_ms},"
                f" alive until {until_ms}",
            )

    def note_known(self, transaction: ObservedTransaction) -> None:
        """Record that a member or its driver knows that its batch is committed."""
        if transaction.batch is not None and not self.is_void(transaction):
            transaction.batch.is_known = True

    def record_batch_answer(
        self, batch: MicroBatch, members: frozenset[ObservedTransaction]
    ) -> None:
        """Record a driver's answer that these members are committed as this batch."""
        if any(self.is_void(member) for member in members):
            return
        self._win(batch, members)
        for member in members:
            self._decide(member, True, "its driver was told so")

    def _win(self, batch: MicroBatch, members: frozenset[ObservedTransaction]) -> None:
        if batch.winners is None:
            batch.winners = members
            if self.on_won is not None:
                self.on_won(batch, members)
        elif batch.winners != members:
            raise InvariantViolation(
                "a micro-batch is committed once",
                f"{batch}: by {_names(batch.winners)}, and by {_names(members)}",
            )

    def _decide(self, transaction: ObservedTransaction, commits: bool, told_by: str) -> None:
        if self.is_void(transaction):
            return
        if transaction.outcome is None:
            transaction.outcome, transaction.told_by = commits, told_by
        elif transaction.outcome is not commits:
            raise InvariantViolation(
                "a transaction ends in one way, everywhere",
                f"{transaction.name} was {_done(transaction.outcome)} ({transaction.told_by}), and"
                f" {_done(commits)} ({told_by})",
            )

    def on_committed(self, tp: TopicPartition, note: BatchNote) -> None:
        """Record a committed batch, after all before it."""
        if not note.is_transactional:
            return
        view = self._views.setdefault(tp, _View())
        if note.marker_commits is None:
            self._data(tp, view, note)
        else:
            self._marker(tp, view, note, note.marker_commits)

    def _data(self, tp: TopicPartition, view: _View, note: BatchNote) -> None:
        producer_id, epoch, _ = note.producer
        key = *note.producer, note.crc
        transaction = self._by_key.get((tp, key))
        if transaction is None:
            raise InvariantViolation("only what was sent is in a log", f"{tp} at {note}")
        if self.is_void(transaction):
            view.parts[note.base_offset] = _Part(transaction, note.base_offset, 0, [key])
            return
        fence = view.fences.get(producer_id, -1)
        late = epoch < fence or (is_single_use(producer_id) and producer_id in view.fences)
        if late or tp in transaction.ended:
            raise InvariantViolation(
                "nothing of a transaction follows its end",
                f"{tp} at {note}: a batch of {transaction.name}",
            )
        part = view.open.get(producer_id)
        if part is None:
            part = _Part(transaction, note.base_offset, note.end_offset - 1, [])
            view.open[producer_id] = part
        elif part.transaction is not transaction and not self.is_void(part.transaction):
            raise InvariantViolation(
                "a transaction ends before the next one of its producer begins",
                f"{tp} at {note}: {transaction.name} in {part.transaction.name}",
            )
        part.keys.append(key)
        part.last = note.end_offset - 1
        view.parts[note.base_offset] = part

    def _marker(self, tp: TopicPartition, view: _View, note: BatchNote, commits: bool) -> None:
        producer_id, epoch, _ = note.producer
        view.fences[producer_id] = max(epoch, view.fences.get(producer_id, -1))
        part = view.open.pop(producer_id, None)
        if part is None:
            return
        part.outcome = commits
        transaction = part.transaction
        transaction.ended.add(tp)
        if self.is_void(transaction):
            return
        if commits:
            self._committed(tp, view, part)
        self._decide(transaction, commits, f"the marker in {tp} at {note.base_offset} says so")

    def _committed(self, tp: TopicPartition, view: _View, part: _Part) -> None:
        transaction = part.transaction
        if not transaction.asked:
            raise InvariantViolation(
                "nothing is committed that nobody asked to commit", f"{transaction.name} in {tp}"
            )
        self._check_whole(tp, part)
        batch = transaction.batch
        if batch is None:
            return
        named = [members for members in batch.requests if transaction in members]
        self._win(batch, named[0])
        first, last = view.spans.get(batch, (part.first, part.last))
        span = view.spans[batch] = min(first, part.first), max(last, part.last)
        self._check_order(tp, view, batch)
        view.check_appears_whole(tp, batch, span, view.stable)

    def _check_whole(self, tp: TopicPartition, part: _Part) -> None:
        sent = part.transaction.sent.get(tp)
        if sent is not None and part.keys != sent:
            raise InvariantViolation(
                "a committed transaction is there whole, once and in order",
                f"{part.transaction.name} has {len(part.keys)} batches in {tp} from {part.first}"
                f" on, of {len(sent)} that were acknowledged",
            )

    def _check_order(self, tp: TopicPartition, view: _View, batch: MicroBatch) -> None:
        span = view.spans[batch]
        for other, there in view.spans.items():
            if other.query != batch.query or other is batch:
                continue
            before, after = (there, span) if other.number < batch.number else (span, there)
            if before[1] > after[0]:
                raise InvariantViolation(
                    "micro-batches are in order in every partition",
                    f"{tp}: {batch} at {span}, {other} at {there}",
                )

    def is_stable(
        self, who: str, tp: TopicPartition, leader_epoch: int, stable: int, high_watermark: int
    ) -> None:
        """Check the last stable offset of a leader, while it leads under that epoch; `who` names
        the observer, which does that again and again."""
        if self._record(tp).unclean:
            return
        if stable > high_watermark:
            raise InvariantViolation(
                "the last stable offset is at most the high watermark",
                f"{tp} in epoch {leader_epoch}: {stable}, {high_watermark}",
            )
        before = self._stable.get((who, tp, leader_epoch), 0)
        if stable < before:
            raise InvariantViolation(
                "the last stable offset never goes back",
                f"{tp} in epoch {leader_epoch}: from {before} to {stable}",
            )
        self._stable[who, tp, leader_epoch] = stable
        view = self._views.setdefault(tp, _View())
        for part in view.open.values():
            if part.first < stable and not self.is_void(part.transaction):
                raise InvariantViolation(
                    "the last stable offset is not above what is undecided",
                    f"{tp} in epoch {leader_epoch}: {stable}, {part.transaction.name} is open from"
                    f" {part.first} on",
                )
        place = bisect_right(view.stable, stable)
        if not place or view.stable[place - 1] != stable:
            insort(view.stable, stable)
            for batch, span in view.spans.items():
                view.check_appears_whole(tp, batch, span, [stable])

    def check_read(self, tp: TopicPartition, offset: int, *, delivered: bool) -> None:
        """Check a batch that a reader of committed transactions got, and delivered or skipped."""
        part = self._views.setdefault(tp, _View()).parts.get(offset)
        if part is None or self.is_void(part.transaction) or delivered is part.outcome:
            return
        outcome = "open" if part.outcome is None else _done(part.outcome)
        raise InvariantViolation(
            "read_committed gets what is committed, and nothing else",
            f"{tp} at {offset}: {part.transaction.name} is {outcome},"
            f" and {'read' if delivered else 'skipped'}",
        )

    def open_parts(self) -> list[str]:
        """Return the transactions that have not ended everywhere."""
        return [
            f"{part.transaction.name} is open in {tp} from {part.first} on"
            for tp, view in self._views.items()
            if not self._record(tp).unclean
            for part in view.open.values()
            if not self.is_void(part.transaction)
        ]

    def is_readable(self, tp: TopicPartition) -> bool:
        """Return True when all of it will be below the last stable offset."""
        return not self._record(tp).unclean and not self._views.setdefault(tp, _View()).open

    def check_end(self) -> None:
        """Check that no transaction is open any more, and that each committed one is there in all
        of its partitions."""
        for batch in self.batches.values():
            if batch.is_known and batch.winners is None and self._should_have(batch):
                raise InvariantViolation(
                    "a batch that is told to be committed is there", f"{batch} is nowhere"
                )
            for member in batch.winners or ():
                self._decide(member, True, f"it is part of {batch}")
        for transaction in self.transactions:
            if transaction.outcome and not self.is_void(transaction):
                for tp in transaction.sent:
                    if tp not in transaction.ended and not self._record(tp).unclean:
                        raise InvariantViolation(
                            "a committed transaction is there whole, once and in order",
                            f"{transaction.name} has nothing in {tp}",
                        )

    def _should_have(self, batch: MicroBatch) -> bool:
        """Return True when all members that could be in its commit wrote to one partition at least
        that keeps its records."""
        return all(
            not self.is_void(member) and any(not self._record(tp).unclean for tp in member.sent)
            for members in batch.requests
            for member in members
        )


def _done(commits: bool) -> str:
    return "committed" if commits else "aborted"


def _names(transactions: frozenset[ObservedTransaction]) -> str:
    return ", ".join(sorted(each.name for each in transactions))
