"""The state of a log's idempotent producers. Within an epoch a producer's sequence has no gap and
no repeat.

For each producer id the newest epoch and the last five batches are kept: five, because a client may
have as many requests in flight, so that any of them may come a second time and is then answered
with its first offset.

    batch comes with            state has                    outcome
    older epoch                 a newer one                  InvalidProducerEpochError
    newer epoch                 an older one                 sequence 0, else OutOfOrderSequence
    same epoch, same sequences  one of the last five batches duplicate: offset of the first time
    same epoch                  last sequence + 1 (or wrap)  accepted
    same epoch                  anything else                OutOfOrderSequenceError
    any sequence                a refused one before it      OutOfOrderSequenceError
    any sequence but 0          nothing of the producer      accepted if it may be forgotten, or
                                                             when it comes for the second time
    no transaction              an open one                  InvalidTxnStateError

    marker comes with           state has                    outcome
    older producer epoch        a newer one                  InvalidProducerEpochError
    epoch of its own            data of that epoch, open     InvalidProducerEpochError (KIP-1228)
    older coordinator epoch     a newer one                  TransactionCoordinatorFencedError
    anything else               an open transaction or none  accepted; ends it, or is harmless

The lines on an unknown producer are where we are stricter than Kafka, which always accepts: where
nothing of the producer can have been forgotten, a producer that does not start at 0 may have an
earlier batch that failed and will be sent again; if the later batch were accepted first, the
earlier one would be refused for good. So it is refused once, with an error after which clients send
again, in order: when it comes again and nothing before it has come, there is nothing before it, as
with a producer that goes on when its topic was deleted and created again. A producer that may be
forgotten may begin at any sequence, but not behind a batch that was refused here and will be sent
again. Source: KIP-98, KIP-360, KIP-890, KIP-1228; R-CLI7.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from storage_engine.core.errors import (
    EarlierBatchExpectedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TooManyProducersError,
    TransactionCoordinatorFencedError,
)
from storage_engine.core.retained.producer_table import (
    BATCHES_REMEMBERED,
    AbortedTransaction,
    PartitionTransactions,
    ProducerEntry,
    ProducerTable,
    SequencedBatch,
    TransactionMarker,
    is_single_use,
)

__all__ = ["BATCHES_REMEMBERED", "ProducerEntry", "SequencedBatch"]

MAX_SEQUENCE = 0x7FFFFFFF
NO_PRODUCER_EPOCH = -1

NONE_FORGOTTEN = -1
ANY_FORGOTTEN = (1 << 63) - 1
"""Stands for the highest producer id that may be missing, where any may be."""

REFUSALS_REMEMBERED = 1000
"""The most refused producers that are remembered of one log: more than begin to write while
replicas are missing. Each entry takes some hundred bytes, and clients choose the ids."""


PRODUCERS_MAX = 50_000
"""The most producers of one log from which on another one, but in a transaction, has to wait.
Clients choose the ids."""

IDLE_MS = 15 * 60 * 1000
"""A producer that has been silent for so long is forgotten when its log, or the broker, has half of
its limit: its clients have given up what it sent last (`delivery.timeout.ms` is 2 minutes)."""

EXPIRED_AT_ONCE = 10_000
"""The most producers that are forgotten in one step; the others in the next, a minute later."""


class RefusedBatch(NamedTuple):
    """The first batch that a producer has to send again."""

    epoch: int
    first_sequence: int


class ProducerStates:
    """All producers of one log, and their transactions."""

    __slots__ = ("_entries", "_left_out", "_refused", "forgotten_to", "transactions")

    def __init__(
        self,
        entries: Iterable[ProducerEntry | bytes] = (),
        *,
        forgotten_to: int = NONE_FORGOTTEN,
        transactions: PartitionTransactions | None = None,
    ) -> None:
        self._entries = ProducerTable(entries)
        self._left_out = 0
        """Producers of the table that this one is a part of, see `copy_of`."""
        self.transactions = PartitionTransactions() if transactions is None else transactions
        self.forgotten_to = forgotten_to
        """No producer of this log with a higher id is missing here: it is the highest id that has
        expired, or ANY_FORGOTTEN where the history of the log is unknown, as in a replica that was
        created when the log did not begin at offset 0 any more. Ids of one transaction don't count
        (see `is_single_use`): their state is never needed after their marker.
        """
        self._refused: dict[int, RefusedBatch] = {}
        """By producer id the first refused batch of a producer without state here. In memory only:
        it matters while later batches are under way on the connection that got the refusal."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries)

    def ids(self) -> list[int]:
        """Return the ids of all producers. To look at each producer of a log takes long."""
        return list(self._entries.ids())

    def packed(self) -> bytes:
        """Return all producers, as in a snapshot."""
        return self._entries.packed()

    def kept_in_log(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the last offsets of all batches that are remembered, and id and epoch of each
        producer that has nothing but a marker: compaction keeps them."""
        return self._entries.kept_in_log()

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        *,
        in_transaction: bool = False,
    ) -> SequencedBatch | None:
        """Return None when the batch may be appended, and the first append of it when it is a
        duplicate; raise otherwise.
        """
        entry = self._entries.get(producer_id)
        count = len(self._entries) + self._left_out
        if entry is None and not in_transaction and count >= PRODUCERS_MAX:
            raise TooManyProducersError(
                f"this partition has {count} producers, which is the maximum, and producer "
                f"{producer_id} is new: wait until some have been silent for "
                f"{IDLE_MS // 60_000} minutes"
            )
        duplicate = self._check_sequence(entry, producer_id, epoch, first_sequence, last_sequence)
        if duplicate is None and not in_transaction and self.transactions.is_open(producer_id):
            raise InvalidTxnStateError(
                f"producer {producer_id} has an open transaction in this partition and sent a batch"
                " that is not part of one: end the transaction first"
            )
        return duplicate

    def _check_sequence(
        self,
        entry: ProducerEntry | None,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
    ) -> SequencedBatch | None:
        if entry is None:
            self._check_first(producer_id, epoch, first_sequence)
            return None
        if epoch != entry.epoch:
            _check_epoch_change(entry, epoch, first_sequence)
            return None
        if not entry.batches:
            self._check_first(producer_id, epoch, first_sequence)
            return None
        expected = (entry.batches[-1].last_sequence + 1) & MAX_SEQUENCE
        if first_sequence == expected:
            return None
        duplicate = entry.find(epoch, first_sequence, last_sequence)
        if duplicate is None:
            raise _gap(entry, first_sequence, expected)
        return duplicate

    def _check_first(self, producer_id: int, epoch: int, first_sequence: int) -> None:
        """Check the sequence of a producer without a batch here."""
        refused = self._refused.get(producer_id)
        if (
            refused is not None
            and refused.epoch == epoch
            and _is_behind(first_sequence, refused.first_sequence)
        ):
            raise OutOfOrderSequenceError(
                f"producer {producer_id} epoch {epoch} sent sequence {first_sequence}, but"
                f" {refused.first_sequence} was refused here and comes first: send both again"
            )
        comes_again = refused is not None and refused == (epoch, first_sequence)
        if first_sequence != 0 and producer_id > self.forgotten_to and not comes_again:
            raise EarlierBatchExpectedError(
                f"producer {producer_id} starts with sequence {first_sequence}, but this"
                " log has nothing of it: expected sequence 0, or this one again"
            )

    def note_refused(self, producer_id: int, epoch: int, first_sequence: int) -> None:
        """Record that a batch was refused with a retriable error. Batches that the producer has
        sent after it must not be accepted before it.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and entry.epoch == epoch and entry.batches:
            # The producer's sequence says which batch comes next.
            return
        known = self._refused.get(producer_id)
        if known is not None and (
            known.epoch > epoch
            or (known.epoch == epoch and _is_behind(first_sequence, known.first_sequence))
        ):
            return
        self._refused[producer_id] = RefusedBatch(epoch, first_sequence)
        if len(self._refused) > REFUSALS_REMEMBERED:
            del self._refused[next(iter(self._refused))]

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """Return the sequence of the next record that the producer writes under this epoch."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch or not entry.batches:
            return 0
        return (entry.batches[-1].last_sequence + 1) & MAX_SEQUENCE

    def check_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        *,
        has_own_epoch: bool = False,
    ) -> None:
        """Raise the error for the coordinator when its marker may not be appended."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"a marker for producer {producer_id} has epoch {epoch}, the log has already seen"
                f" epoch {entry.epoch}"
            )
        if has_own_epoch and epoch == entry.epoch and self.transactions.is_open(producer_id):
            raise InvalidProducerEpochError(
                f"a marker for producer {producer_id} with epoch {epoch} has come late: the"
                " transaction that is open under this epoch is the one after it"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"a marker for producer {producer_id} comes from coordinator epoch"
                f" {coordinator_epoch}, the log has one of epoch {entry.coordinator_epoch}"
            )

    def record(
        self,
        producer_id: int,
        epoch: int,
        batch: SequencedBatch,
        *,
        now_ms: int,
        in_transaction: bool = False,
    ) -> None:
        """Record an appended batch. Nothing is checked, since a follower takes whatever its leader
        has.
        """
        if in_transaction:
            self.transactions.note_data(producer_id, batch.base_offset)
        if self._refused:
            self._refused.pop(producer_id, None)
        entry = self._entries.get(producer_id)
        if entry is None:
            self._entries.begin(producer_id, epoch, now_ms, batch)
            return
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches = ()
        entry.batches = (*entry.batches[1 - BATCHES_REMEMBERED :], batch)
        self._entries.note_seen(entry, now_ms)
        self._entries.put(entry)

    def record_marker(
        self,
        producer_id: int,
        epoch: int,
        marker: TransactionMarker | None,
        *,
        offset: int,
        now_ms: int,
    ) -> AbortedTransaction | None:
        """Record the end of a transaction, which has no sequence but may raise the epoch. Return
        the entry for the transaction index when an aborted transaction has data.

        `marker` None: a control batch that ends nothing.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = ProducerEntry(producer_id, epoch, now_ms)
        elif epoch > entry.epoch:
            entry.epoch = epoch
            entry.batches = ()
        self._entries.note_seen(entry, now_ms)
        if marker is not None:
            entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        self._entries.put(entry)
        if marker is None:
            return None
        ended = self.transactions.end(producer_id, offset)
        if is_single_use(producer_id):
            # No batch of it comes any more, except some that are refused as unverified.
            self._entries.remove(producer_id)
        return None if marker.commits else ended

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction that have been silent for longer, in a log
        with many for IDLE_MS; return their number, EXPIRED_AT_ONCE at most.
        """
        if len(self._entries) >= PRODUCERS_MAX // 2:
            expiration_ms = min(expiration_ms, IDLE_MS)
        gone: list[int] = []
        for producer_id, seen_ms in self._entries.seen():
            if 0 <= now_ms - seen_ms < expiration_ms or len(gone) >= EXPIRED_AT_ONCE:
                # Those behind it have written since.
                break
            if now_ms >= seen_ms and not self.transactions.is_open(producer_id):
                gone.append(producer_id)
        for producer_id in gone:
            self._entries.remove(producer_id)
            self._note_forgotten(producer_id)
        return len(gone)

    def _note_forgotten(self, producer_id: int) -> None:
        if not is_single_use(producer_id):
            self.forgotten_to = max(self.forgotten_to, producer_id)

    def cut_from(self, before: "ProducerStates") -> None:
        """Take over what the table `before` of the same log, which was truncated since, knew or had
        forgotten: nothing else can be missing.
        """
        if self.forgotten_to == ANY_FORGOTTEN:
            self.forgotten_to = before.forgotten_to
            for producer_id in set(before._entries.ids()) - set(self._entries.ids()):
                self._note_forgotten(producer_id)

    def put_back(self, entries: Iterable[ProducerEntry], *, without: Iterable[int] = ()) -> None:
        """Replace producers by what they were at an earlier end of the log, which was truncated to
        it, and drop those that had not begun there. What was refused behind that end is no bound
        any more."""
        for entry in entries:
            self._entries.put(entry)
        for producer_id in without:
            self._entries.remove(producer_id)
        self._refused = {}

    def copy_of(self, producer_ids: Iterable[int]) -> "ProducerStates":
        """Return a small table with copies of these producers, for a check of several batches of
        one request.
        """
        wanted = set(producer_ids)
        entries = (self._entries.get(producer_id) for producer_id in wanted)
        ongoing = (each for each in self.transactions.ongoing.items() if each[0] in wanted)
        copy = ProducerStates(
            (entry.copy() for entry in entries if entry is not None),
            forgotten_to=self.forgotten_to,
            transactions=PartitionTransactions(ongoing),
        )
        copy._left_out = len(self._entries) - len(copy._entries)
        if self._refused:
            copy._refused = {
                producer_id: self._refused[producer_id]
                for producer_id in wanted & self._refused.keys()
            }
        return copy


def _is_behind(sequence: int, other: int) -> bool:
    """Return True when `sequence` comes after `other`; sequences wrap."""
    return 0 < (sequence - other) & MAX_SEQUENCE <= MAX_SEQUENCE >> 1


def _check_epoch_change(entry: ProducerEntry, epoch: int, first_sequence: int) -> None:
    if epoch < entry.epoch:
        raise InvalidProducerEpochError(
            f"producer {entry.producer_id} writes with epoch {epoch}, the log has already seen"
            f" epoch {entry.epoch}: a newer instance has taken over"
        )
    if first_sequence != 0:
        raise OutOfOrderSequenceError(
            f"producer {entry.producer_id} begins epoch {epoch} with sequence {first_sequence},"
            " expected 0"
        )


def _gap(entry: ProducerEntry, first_sequence: int, expected: int) -> OutOfOrderSequenceError:
    return OutOfOrderSequenceError(
        f"producer {entry.producer_id} epoch {entry.epoch} sent sequence {first_sequence},"
        f" expected {expected}"
    )
