"""What became of every transaction, by what is committed in the logs of its partitions, and whether
that is what its client was told and what readers get.

Rule: a transaction has one outcome, from the first that tells it: the answer to its client, or a
marker in any partition. All others have to agree. Nothing is promised of what lay in a partition
whose replicas all lost their power, nor of a transaction whose coordinator's log did. Source:
KIP-98, KIP-890, R-SPARK2.
"""

from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.single_use import is_single_use
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.simulation.checks.copies import BatchNote
from storage_engine.simulation.checks.ledger import InvariantViolation, PartitionRecord

Key = tuple[int, int, int, int]
"""Producer id, epoch, first sequence and checksum of a batch: no two batches of a run share it."""


OnWon = Callable[["MicroBatch", "frozenset[ObservedTransaction]"], None]


class Word(NamedTuple):
    """When a request was sent that was answered, and answered, and whether by a broker that led
    the coordinator's partition all the time."""

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
    """Somebody was told that it is committed."""
    requests: "list[frozenset[ObservedTransaction]]" = field(default_factory=list)
    touches: list[tuple[int, int]] = field(default_factory=list)
    """When somebody asked for something that keeps its members alive, and had the answer of the
    coordinator that counts."""

    def touched(self, word: Word) -> None:
        if word.is_of_leader:
            self.touches.append((word.sent_ms, word.answered_ms))

    def alive_until(self, since_ms: int, timeout_ms: int) -> int:
        """The time before which a member, alive then, can't have timed out."""
        end_ms = since_ms + timeout_ms
        while later := [s for s, answered in self.touches if answered < end_ms < s + timeout_ms]:
            end_ms = max(later) + timeout_ms
        return end_ms

    def __str__(self) -> str:
        return f"batch {self.number} of {self.query}"


@dataclass(slots=True, eq=False)
class ObservedTransaction:
    """One transaction, as its client knows it."""

    name: str
    state_partition: TopicPartition
    """Of its coordinator."""
    batch: MicroBatch | None = None
    """Of a task attempt."""
    sent: dict[TopicPartition, list[Key]] = field(default_factory=dict)
    """In the order of their sequences."""
    asked: bool = False
    """Whether a commit was asked for."""
    is_given_up: bool = False
    """Whether somebody asked to abort it as a member."""
    joined_ms: int = -1
    """When a member asked to join, and did."""
    outcome: bool | None = None
    told_by: str = ""
    ended: set[TopicPartition] = field(default_factory=set)
    """Where its marker is committed, and it has data."""

    def note_sent(self, tp: TopicPartition, batch: memoryview) -> Key:
        header = read_header(batch)
        key = header.producer_id, header.producer_epoch, header.base_sequence, header.crc
        self.sent.setdefault(tp, []).append(key)
        return key


@dataclass(slots=True, eq=False)
class _Part:
    """What a transaction has in one partition."""

    transaction: ObservedTransaction
    first: int
    last: int
    keys: list[Key]
    outcome: bool | None = None


class _View:
    """One partition, as far as it is committed."""

    def __init__(self) -> None:
        self.open: dict[int, _Part] = {}
        """By producer id."""
        self.parts: dict[int, _Part] = {}
        """By the base offset of each batch."""
        self.fences: dict[int, int] = {}
        """Producer id -> epoch of its newest marker."""
        self.spans: dict[MicroBatch, tuple[int, int]] = {}
        """First and last offset of what is committed of a micro-batch."""
        self.stable: list[int] = []
        """All last stable offsets that a leader had, ascending."""

    def check_appears_whole(
        self, tp: TopicPartition, batch: MicroBatch, span: tuple[int, int], stable: list[int]
    ) -> None:
        """No reader could see a part of it, unless the transaction of somebody else was open from
        there on."""
        first, last = span
        for offset in stable[bisect_right(stable, first) : bisect_right(stable, last)]:
            there = self.parts.get(offset)
            if there is None or there.first != offset or there.transaction.batch is batch:
                raise InvariantViolation(
                    "a micro-batch appears whole",
                    f"{tp} has {batch} at {first}..{last}, and was readable up to {offset}",
                )


class TransactionLedger:
    """Of one run."""

    def __init__(self, record: Callable[[TopicPartition], PartitionRecord]) -> None:
        self._record = record
        self.on_won: OnWon | None = None
        """Hears, once for each micro-batch, which members make it up."""
        self._views: dict[TopicPartition, _View] = {}
        self._by_key: dict[tuple[TopicPartition, Key], ObservedTransaction] = {}
        self._stable: dict[tuple[str, TopicPartition, int], int] = {}
        """The last stable offset by who looked at it, partition and leader epoch."""
        self.transactions: list[ObservedTransaction] = []
        self.batches: dict[tuple[str, int], MicroBatch] = {}
        self._moving: dict[str, list[MicroBatch]] = {}
        """By query: the batches whose commits move origins, or may."""

    # --- what clients do ---

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
        """It is about to send a batch for the first time."""
        self._by_key[tp, transaction.note_sent(tp, batch)] = transaction

    def sends_offsets(
        self, transaction: ObservedTransaction, tp: TopicPartition, note: BatchNote
    ) -> None:
        """The group's coordinator has made that batch of what the transaction commits."""
        self._by_key[tp, (*note.producer, note.crc)] = transaction

    def note_moving(self, batch: MicroBatch) -> None:
        """A driver asks to commit it, with origins."""
        self._moving.setdefault(batch.query, []).append(batch)

    def is_void(self, transaction: ObservedTransaction) -> bool:
        """Its coordinator's log may have lost what was committed there."""
        return self._record(transaction.state_partition).unclean

    def told(self, transaction: ObservedTransaction, *, commits: bool) -> None:
        """Its client was told how it has ended."""
        self._decide(transaction, commits, "its producer was told so")

    def check_replay(self, transaction: ObservedTransaction, api: str) -> None:
        """A request about a batch was answered with OK, though somebody knew, when it was sent,
        that the batch is committed."""
        if not self.is_void(transaction):
            raise InvariantViolation(
                "a replay is told that its batch is committed",
                f"{transaction.batch} was committed when {api} was sent, and {api} succeeded",
            )

    def check_loss(
        self,
        batch: MicroBatch,
        members: frozenset[ObservedTransaction],
        word: Word,
        *,
        timeout_ms: int,
        has_origins: bool,
    ) -> None:
        """A driver was told that a member is lost. It may be, if its time was over, if somebody
        gave it up, or if another query may have copied what it has copied."""
        if not word.is_of_leader or any(self.is_void(each) for each in members):
            return
        if any(each.is_given_up for each in members):
            return
        if has_origins and any(query != batch.query for query in self._moving):
            return
        until_ms = min(batch.alive_until(each.joined_ms, timeout_ms) for each in members)
        if word.answered_ms < until_ms:
            raise InvariantViolation(
                "a member is lost to its timeout, or because somebody gives it up",
                f"{batch} by {_names(members)}: lost at {word.answered_ms}, alive until {until_ms}",
            )

    def note_known(self, transaction: ObservedTransaction) -> None:
        """A member's driver, or the member, was told that its batch is committed."""
        if transaction.batch is not None and not self.is_void(transaction):
            transaction.batch.is_known = True

    def batch_told(self, batch: MicroBatch, members: frozenset[ObservedTransaction]) -> None:
        """A driver was told that these members are committed as this batch."""
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

    # --- what logs say ---

    def on_committed(self, tp: TopicPartition, note: BatchNote) -> None:
        """A batch is committed, and all before it are."""
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

    # --- what leaders and readers see ---

    def is_stable(
        self, who: str, tp: TopicPartition, leader_epoch: int, stable: int, high_watermark: int
    ) -> None:
        """The last stable offset of a leader, while it leads under that epoch; `who` looks at it
        again and again."""
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
        """A reader of committed transactions was given a batch, and takes it or skips it."""
        part = self._views.setdefault(tp, _View()).parts.get(offset)
        if part is None or self.is_void(part.transaction) or delivered is part.outcome:
            return
        outcome = "open" if part.outcome is None else _done(part.outcome)
        raise InvariantViolation(
            "read_committed gets what is committed, and nothing else",
            f"{tp} at {offset}: {part.transaction.name} is {outcome},"
            f" and {'read' if delivered else 'skipped'}",
        )

    # --- the end ---

    def open_parts(self) -> list[str]:
        """Transactions that have not ended everywhere."""
        return [
            f"{part.transaction.name} is open in {tp} from {part.first} on"
            for tp, view in self._views.items()
            if not self._record(tp).unclean
            for part in view.open.values()
            if not self.is_void(part.transaction)
        ]

    def is_readable(self, tp: TopicPartition) -> bool:
        """Whether all of it will be below the last stable offset."""
        return not self._record(tp).unclean and not self._views.setdefault(tp, _View()).open

    def check_end(self) -> None:
        """Nothing is open any more: what has committed is there, in all of its partitions."""
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
        """Whether all that could have committed it wrote to partitions that keep what they have."""
        return all(
            not self.is_void(member) and any(not self._record(tp).unclean for tp in member.sent)
            for members in batch.requests
            for member in members
        )


def _done(commits: bool) -> str:
    return "committed" if commits else "aborted"


def _names(transactions: frozenset[ObservedTransaction]) -> str:
    return ", ".join(sorted(each.name for each in transactions))
