"""What a log knows of its idempotent producers. Its one rule: within an epoch a producer's sequence
has no gap and no repeat.

For each producer id the newest epoch and the last five batches are kept: five, because a client may
have as many requests in flight, so that any of them may come a second time and is then answered
with its first offset.

    batch comes with            state has                    outcome
    older epoch                 a newer one                  InvalidProducerEpochError
    newer epoch                 an older one                 sequence 0, else OutOfOrderSequence
    same epoch, same sequences  one of the last five batches duplicate: offset of the first time
    same epoch                  last sequence + 1 (or wrap)  accepted
    same epoch                  anything else                OutOfOrderSequenceError
    any sequence but 0          nothing of the producer      accepted if something was forgotten
    no transaction              an open one                  InvalidTxnStateError

    marker comes with           state has                    outcome
    older producer epoch        a newer one                  InvalidProducerEpochError
    epoch of its own            data of that epoch, open     InvalidProducerEpochError (KIP-1228)
    older coordinator epoch     a newer one                  TransactionCoordinatorFencedError
    anything else               an open transaction or none  accepted; ends it, or is harmless

The line on an unknown producer is where we are stricter than Kafka, which always accepts: with a
complete history an unknown producer that does not start at 0 has a batch under way that failed and
will be sent again, and accepting the later one first would lock the earlier one out for good.
Source: KIP-98, KIP-360, KIP-890, KIP-1228; R-CLI7.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from storage_engine.core.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from storage_engine.core.partition_transactions import (
    NO_COORDINATOR_EPOCH,
    AbortedTransaction,
    PartitionTransactions,
    TransactionMarker,
)
from storage_engine.core.single_use import is_single_use

BATCHES_REMEMBERED = 5
"""Kafka's clients have at most five requests in flight per connection when they are idempotent."""

MAX_SEQUENCE = 0x7FFFFFFF
NO_PRODUCER_EPOCH = -1


class ProducerBatch(NamedTuple):
    """One batch of a producer, as it was appended."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry:
    """State of one producer id. Invariant: `batches` are all of `epoch`, oldest first."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_seen_ms", "producer_id")

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        last_seen_ms: int,
        batches: Iterable[ProducerBatch] = (),
        *,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_seen_ms = last_seen_ms
        """By our clock: the times in batches may be those of events long past."""
        self.batches: deque[ProducerBatch] = deque(batches, BATCHES_REMEMBERED)
        self.coordinator_epoch = coordinator_epoch
        """Of the transaction coordinator that wrote the producer's last marker."""

    def find(self, epoch: int, first_sequence: int, last_sequence: int) -> ProducerBatch | None:
        """The remembered batch of exactly these sequences."""
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def copy(self) -> "ProducerEntry":
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            self.last_seen_ms,
            self.batches,
            coordinator_epoch=self.coordinator_epoch,
        )


class ProducerStates:
    """All producers of one log, and their transactions."""

    __slots__ = ("_entries", "forgotten", "transactions")

    def __init__(
        self,
        entries: Iterable[ProducerEntry] = (),
        *,
        forgotten: bool = False,
        transactions: PartitionTransactions | None = None,
    ) -> None:
        self._entries: dict[int, ProducerEntry] = {entry.producer_id: entry for entry in entries}
        self.transactions = PartitionTransactions() if transactions is None else transactions
        self.forgotten = forgotten
        """Whether a producer of this log may be missing here: one expired, or the log no longer
        begins at offset 0.
        """

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

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
    ) -> ProducerBatch | None:
        """None when the batch may be appended, the batch of the first time when it is a duplicate;
        else raises.
        """
        entry = self._entries.get(producer_id)
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
    ) -> ProducerBatch | None:
        if entry is None:
            if first_sequence != 0 and not self.forgotten:
                raise OutOfOrderSequenceError(
                    f"producer {producer_id} starts with sequence {first_sequence}, but this"
                    " log has nothing of it: expected sequence 0"
                )
            return None
        if epoch != entry.epoch:
            _check_epoch_change(entry, epoch, first_sequence)
            return None
        if not entry.batches:
            if first_sequence != 0 and not self.forgotten:
                raise _gap(entry, first_sequence, 0)
            return None
        expected = (entry.batches[-1].last_sequence + 1) & MAX_SEQUENCE
        if first_sequence == expected:
            return None
        duplicate = entry.find(epoch, first_sequence, last_sequence)
        if duplicate is None:
            raise _gap(entry, first_sequence, expected)
        return duplicate

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """That of the first record that the producer writes next under this epoch."""
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
        """Raises what the coordinator is to get when its marker may not be appended."""
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
        batch: ProducerBatch,
        *,
        now_ms: int,
        in_transaction: bool = False,
    ) -> None:
        """Takes up a batch that is in the log now; no checks, since a replica takes what its leader
        has.
        """
        if in_transaction:
            self.transactions.note_data(producer_id, batch.base_offset)
        entry = self._entries.get(producer_id)
        if entry is None:
            self._entries[producer_id] = ProducerEntry(producer_id, epoch, now_ms, (batch,))
            return
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.batches.append(batch)
        entry.last_seen_ms = now_ms

    def record_marker(
        self,
        producer_id: int,
        epoch: int,
        marker: TransactionMarker | None,
        *,
        offset: int,
        now_ms: int,
    ) -> AbortedTransaction | None:
        """Takes up the end of a transaction, which has no sequence but may raise the epoch; what
        readers have to know when it is aborted and has data.

        `marker` None: a control batch that ends nothing.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch, now_ms)
        elif epoch > entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.last_seen_ms = now_ms
        if marker is None:
            return None
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        ended = self.transactions.end(producer_id, offset)
        if is_single_use(producer_id):
            # Nothing of it comes any more, but for what is refused as unverified.
            del self._entries[producer_id]
        return None if marker.commits else ended

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that have been silent for longer and have no open transaction; their
        number.
        """
        gone = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - entry.last_seen_ms >= expiration_ms
            and not self.transactions.is_open(producer_id)
        ]
        for producer_id in gone:
            del self._entries[producer_id]
        if gone:
            self.forgotten = True
        return len(gone)

    def copy_of(self, producer_ids: Iterable[int]) -> "ProducerStates":
        """A small table with copies of these producers, to try several batches of one request
        on.
        """
        wanted = set(producer_ids)
        entries = (self._entries.get(producer_id) for producer_id in wanted)
        ongoing = (each for each in self.transactions.ongoing.items() if each[0] in wanted)
        return ProducerStates(
            (entry.copy() for entry in entries if entry is not None),
            forgotten=self.forgotten,
            transactions=PartitionTransactions(ongoing),
        )


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
