"""The producers of one log, in the order in which they wrote last, give or take a second; and the
transactions of its partition.

Clients choose producer ids, and a client that makes them up writes once with most of them. So a
producer with one batch is kept in a fifth of the room of an object: as its bytes in a snapshot,
which only have to be joined when a snapshot is written.

    field               bytes  meaning
    producer_id           8
    epoch                 2
    last_seen_ms          8     the broker's clock at the last batch
    coordinator_epoch     4     of its last marker; -1: none
    batches               1     0 to 5, oldest first
    then per batch: first_sequence 4, last_sequence 4, base_offset 8, last_offset 8, timestamp_ms 8

Each task attempt of the exactly-once sink has a producer id of its own, and no batch with such an
id follows its marker. So logs forget it with the marker. Other producers are remembered for a day
after their last batch; with single-use ids that table would grow with every task of every
micro-batch. Late batches are refused by the partition's guard, which asks the coordinator
(`core.transactions.verification_guard`).

The last stable offset never passes a record whose transaction may still end either way.

    ongoing   first offset by producer id, from the first batch of a transaction to its marker
    ended     (first, last offset) of those whose marker may still be lost: it lies at or above
              the high watermark, so that another leader may not have it

    first unstable offset = the smallest first offset of both
    last stable offset    = min(high watermark, first unstable offset)

Source: KIP-98 (`ended` is Kafka's "unreplicated transactions"), R-SPARK2.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ENDED_MAX = 1000
"""The most entries of `ended`: beyond, the two oldest are merged, as after a replay of a long log,
until the high watermark is known. The last stable offset is too low then, never too high."""

NO_COORDINATOR_EPOCH = -1


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in a partition (see protocol.records.control_record)."""

    commits: bool
    coordinator_epoch: int
    has_own_epoch: bool = False
    """True when no record of the transaction has the marker's epoch, but those of the next one will
    (KIP-890). It is not stored in the log."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as the transaction index and readers see it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""
    last_stable_offset: int
    """The last stable offset when this transaction ended, without the bound of the high watermark:
    every transaction with a record below it was decided."""


class EndedTransaction(NamedTuple):
    """A transaction whose marker may not be on every replica yet."""

    first_offset: int
    last_offset: int


class PartitionTransactions:
    """Invariant: `ongoing` is in ascending order of first offsets; `ended` ascends in both
    columns."""

    __slots__ = ("_ended", "_ongoing")

    def __init__(
        self,
        ongoing: Iterable[tuple[int, int]] = (),
        ended: Iterable[EndedTransaction] = (),
    ) -> None:
        """`ongoing` has pairs (producer id, first offset)."""
        self._ongoing = dict(sorted(ongoing, key=lambda each: each[1]))
        self._ended = deque(ended)

    @property
    def ongoing(self) -> dict[int, int]:
        """The first offset by producer id; for reading only."""
        return self._ongoing

    @property
    def ended(self) -> tuple[EndedTransaction, ...]:
        return tuple(self._ended)

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._ongoing

    def note_data(self, producer_id: int, base_offset: int) -> None:
        """Record a transactional batch: the first of a transaction opens it."""
        if producer_id not in self._ongoing:
            self._ongoing[producer_id] = base_offset

    def end(self, producer_id: int, marker_offset: int) -> AbortedTransaction | None:
        """Record a marker; return the transaction, with what is to be kept of it if it was aborted.

        Return None when the producer had none: a marker without data is harmless.
        """
        first_offset = self._ongoing.pop(producer_id, None)
        if first_offset is None:
            return None
        ended = self._ended
        while ended and ended[-1].first_offset >= first_offset:
            # That entry is no bound any more: this one begins lower and ends later.
            ended.pop()
        ended.append(EndedTransaction(first_offset, marker_offset))
        if len(ended) > ENDED_MAX:
            oldest = ended.popleft()
            ended[0] = EndedTransaction(oldest.first_offset, ended[0].last_offset)
        stable = next(iter(self._ongoing.values()), marker_offset + 1)
        return AbortedTransaction(producer_id, first_offset, marker_offset, stable)

    def note_high_watermark(self, high_watermark: int) -> None:
        """Drop the ended transactions whose markers can't be lost any more."""
        ended = self._ended
        while ended and ended[0].last_offset < high_watermark:
            ended.popleft()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset, exclusive as the high watermark is: everything below is
        decided."""
        stable = high_watermark
        if self._ended:
            self.note_high_watermark(high_watermark)
            if self._ended:
                stable = min(stable, self._ended[0].first_offset)
        if self._ongoing:
            stable = min(stable, next(iter(self._ongoing.values())))
        return stable


SINGLE_USE_BIT = 1 << 62
"""Ordinary ids count from 0, and never get so high."""


def single_use(producer_id: int) -> int:
    return producer_id | SINGLE_USE_BIT


def is_single_use(producer_id: int) -> bool:
    return producer_id & SINGLE_USE_BIT != 0 and producer_id > 0


BATCHES_REMEMBERED = 5
"""Kafka's clients have at most five requests in flight per connection when they are idempotent."""

MOVED_EACH_MS = 1_000
"""A producer that writes all the time is moved in the order as often as this."""

PRODUCER = struct.Struct(">qhqiB")
BATCH = struct.Struct(">iiqqq")
_WITH_ONE = struct.Struct(">qhqiBiiqqq")
_ID = struct.Struct(">q")
_LAST_SEEN = struct.Struct(">q")
_LAST_SEEN_AT = 10
_OFFSET = struct.Struct(">q")
_LAST_OFFSET_AT = PRODUCER.size + 16


class SequencedBatch(NamedTuple):
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
        batches: Iterable[SequencedBatch] = (),
        *,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_seen_ms = last_seen_ms
        """The broker's clock at the last batch: the timestamps of batches may be those of events
        long past."""
        self.batches: tuple[SequencedBatch, ...] = tuple(batches)[-BATCHES_REMEMBERED:]
        self.coordinator_epoch = coordinator_epoch
        """The epoch of the transaction coordinator that wrote the producer's last marker."""

    def find(self, epoch: int, first_sequence: int, last_sequence: int) -> SequencedBatch | None:
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

    def packed(self) -> bytes:
        head = PRODUCER.pack(
            self.producer_id,
            self.epoch,
            self.last_seen_ms,
            self.coordinator_epoch,
            len(self.batches),
        )
        return head + b"".join(BATCH.pack(*batch) for batch in self.batches)


def unpacked(data: bytes) -> ProducerEntry:
    """Return the entry in these bytes; struct.error when they are not one."""
    producer_id, epoch, last_seen_ms, coordinator_epoch, _ = PRODUCER.unpack_from(data)
    batches = map(SequencedBatch._make, BATCH.iter_unpack(data[PRODUCER.size :]))
    return ProducerEntry(
        producer_id, epoch, last_seen_ms, batches, coordinator_epoch=coordinator_epoch
    )


class ProducerTable:
    """Producers by id; the one that wrote last comes last."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[ProducerEntry | bytes] = ()) -> None:
        self._entries: dict[int, ProducerEntry | bytes] = {}
        for entry in entries:
            if isinstance(entry, bytes):
                self._entries[_ID.unpack_from(entry)[0]] = entry
            else:
                self.put(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return map(_entry, self._entries.values())

    def ids(self) -> Iterable[int]:
        return self._entries.keys()

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return what is known of a producer; `put` it after a change."""
        known = self._entries.get(producer_id)
        return unpacked(known) if isinstance(known, bytes) else known

    def put(self, entry: ProducerEntry) -> None:
        few = len(entry.batches) < 2
        self._entries[entry.producer_id] = entry.packed() if few else entry

    def begin(self, producer_id: int, epoch: int, now_ms: int, batch: SequencedBatch) -> None:
        head = producer_id, epoch, now_ms, NO_COORDINATOR_EPOCH, 1
        self._entries[producer_id] = _WITH_ONE.pack(*head, *batch)

    def note_seen(self, entry: ProducerEntry, now_ms: int) -> None:
        """The producer writes now; to be followed by `put`."""
        # By whole seconds: the time since the last batch is short for one that writes all the time.
        if now_ms // MOVED_EACH_MS != entry.last_seen_ms // MOVED_EACH_MS:
            self._entries.pop(entry.producer_id, None)
        entry.last_seen_ms = now_ms

    def remove(self, producer_id: int) -> None:
        del self._entries[producer_id]

    def seen(self) -> Iterator[tuple[int, int]]:
        """Return each id and when it was last seen, the longest idle first."""
        for producer_id, entry in self._entries.items():
            if isinstance(entry, bytes):
                yield producer_id, _LAST_SEEN.unpack_from(entry, _LAST_SEEN_AT)[0]
            else:
                yield producer_id, entry.last_seen_ms

    def kept_in_log(self) -> tuple[list[int], list[tuple[int, int]]]:
        """See `ProducerStates`; makes no object for each producer."""
        last_offsets: list[int] = []
        only_markers: list[tuple[int, int]] = []
        for producer_id, entry in self._entries.items():
            if not isinstance(entry, bytes):
                last_offsets += (batch.last_offset for batch in entry.batches)
            elif len(entry) == _WITH_ONE.size:
                last_offsets.append(_OFFSET.unpack_from(entry, _LAST_OFFSET_AT)[0])
            else:
                only_markers.append((producer_id, unpacked(entry).epoch))
        return last_offsets, only_markers

    def packed(self) -> bytes:
        """Return all of them, as in a snapshot."""
        return b"".join([e if isinstance(e, bytes) else e.packed() for e in self._entries.values()])


def _entry(known: ProducerEntry | bytes) -> ProducerEntry:
    return unpacked(known) if isinstance(known, bytes) else known
