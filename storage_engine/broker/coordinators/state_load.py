"""Reads a partition of a coordinator's log when this broker begins to lead it. The event loop
neither waits for the disk nor decodes.

Pieces are brought into memory and replayed in the background, one after the other, from the log's
start to where it ended when the load began. Meanwhile only ends of transactions are appended, which
the new coordinator gets once it is made.

Every byte counts: with a skipped batch, acknowledged state would be lost. A batch's length, magic
and offset lie outside its CRC, so each batch has to begin where the one before it ends, in bytes;
in offsets not before that, since compaction leaves some out. Source: KIP-98.

Handles logs of coordinators that can't be read. Damage is repaired from a replica; where that
does not help, or the disk fails, a sound replica becomes leader.

    damaged bytes      left to the scrubber, which fetches them from a replica; read again after a
                       pause that grows; after some tries at the same place leadership is given to
                       another in-sync replica, if one lives: this one is offline until its broker
                       is restarted
    the medium fails   the log dir is offline at once, as for any reader; a failure of one
                       file gives the replica away when a second load, begun anew, ends by such a
                       failure, too: compaction may have replaced the segment that was read
    any other failure  read again after a pause that grows: others would fail, too
"""

import logging
from collections.abc import Callable, Container, Iterable, Sized
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from storage_engine.broker import unexpected
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.unexpected import Args
from storage_engine.core.coordinator_log import EntryT
from storage_engine.core.errors import (
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    LogBusyError,
    LogDirError,
    LogStorageError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background, Clock
from storage_engine.core.replication.partition import LeaderPartition
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.segments.segment_slice import SegmentSlice
from storage_engine.protocol.records.record_batch import MAGIC, crc_matches, iter_headers

log = logging.getLogger(__name__)


FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000
TRIES = 6
"""The most attempts to read the same damaged place, half a minute in all: enough time to repair a
segment."""
STORAGE_TRIES = 2
"""The most loads in a row that end by an unreadable file: the first may have lost a segment to the
cleaner, the second has listed the segments anew."""
LOG_EVERY_MS = 60_000
"""The shortest pause between log lines about the same failure."""


class DamagedLogError(CorruptRecordError):
    """The bytes of the log from `offset` on are not those that were appended."""

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.offset = offset


@dataclass(slots=True)
class _Trouble:
    """The failed loads of one partition, until its log is read, while this broker leads it."""

    leader: LeaderPartition | None
    tries: int = 0
    damaged_offset: int = -1
    damage_tries: int = 0
    """Failed attempts at this place, without other failures and damage that was repaired."""
    storage_tries: int = 0
    """Loads in a row that ended by an unreadable file."""
    text: str = ""
    logged_ms: int = 0


class LoadTroubles:
    """Decides what follows when the coordinators of one broker can't read their logs."""

    def __init__(
        self,
        clock: Clock,
        *,
        repair: Callable[[HostedPartition, int], None],
        is_sound_elsewhere: Callable[[HostedPartition], bool],
        give_away: Callable[[HostedPartition, KafkaError], None],
    ) -> None:
        """`repair`: has the damage at an offset repaired from a replica. `is_sound_elsewhere`:
        whether another replica could lead. `give_away`: takes this replica out of service, so that
        another leads, if one can."""
        self._clock = clock
        self._repair = repair
        self._is_sound_elsewhere = is_sound_elsewhere
        self._give_away = give_away
        self._troubles: dict[TopicPartition, _Trouble] = {}

    def failed(self, partition: HostedPartition, failure: Exception) -> int:
        """Decide what to do; return the delay in ms before the log is read again."""
        tp = partition.topic_partition
        trouble = self._troubles.get(tp)
        if trouble is None or trouble.leader is not partition.leader:
            # It may have been led elsewhere during the pause.
            trouble = self._troubles[tp] = _Trouble(partition.leader)
        trouble.tries += 1
        self._log_failure(tp, trouble, failure)
        is_storage = isinstance(failure, LogStorageError) and not isinstance(failure, LogBusyError)
        trouble.storage_tries = trouble.storage_tries + 1 if is_storage else 0
        if isinstance(failure, LogStorageError) and is_storage:
            if isinstance(failure, LogDirError) or trouble.storage_tries >= STORAGE_TRIES:
                del self._troubles[tp]
                self._give_away(partition, failure)
        elif isinstance(failure, DamagedLogError):
            return self._damaged(partition, trouble, failure)
        return _pause_ms(trouble.tries)

    def _damaged(
        self, partition: HostedPartition, trouble: _Trouble, failure: DamagedLogError
    ) -> int:
        if trouble.damaged_offset != failure.offset:
            trouble.damaged_offset, trouble.damage_tries = failure.offset, 0
        trouble.damage_tries += 1
        if trouble.damage_tries >= TRIES and self._is_sound_elsewhere(partition):
            del self._troubles[partition.topic_partition]
            self._give_away(
                partition,
                KafkaError(
                    f"its log could not be repaired in {TRIES} tries, and another replica in "
                    f"sync is to lead until this broker is restarted: {failure}",
                    ErrorCode.KAFKA_STORAGE_ERROR,
                ),
            )
        else:
            self._repair(partition, failure.offset)
        return _pause_ms(trouble.damage_tries)

    def loaded(self, tp: TopicPartition) -> None:
        trouble = self._troubles.pop(tp, None)
        if trouble is not None:
            log.info("state is read after %d failures partition=%s", trouble.tries, tp)

    def forget(self, tp: TopicPartition) -> None:
        """Drop a partition that another broker leads now."""
        self._troubles.pop(tp, None)

    def _log_failure(self, tp: TopicPartition, trouble: _Trouble, failure: Exception) -> None:
        now_ms = self._clock.monotonic_ms()
        text = f"{type(failure).__name__}: {failure}"
        if text == trouble.text and now_ms - trouble.logged_ms < LOG_EVERY_MS:
            return
        trouble.text, trouble.logged_ms = text, now_ms
        expected = isinstance(failure, KafkaError | OSError)
        log.error(
            "state not read, trying again partition=%s tries=%d: %s",
            tp, trouble.tries, text, exc_info=None if expected else failure,
        )  # fmt: skip


def _pause_ms(tries: int) -> int:
    return min(FIRST_PAUSE_MS << min(tries - 1, 10), LONGEST_PAUSE_MS)


PIECE_BYTES = 1 << 20
"""The bytes that are read and replayed at a time; they are copied on the event loop."""

TROUBLES_TOLD = 100
"""The most unreadable records that one load logs."""


EntryT_contra = TypeVar("EntryT_contra", contravariant=True)
ContentT = TypeVar("ContentT", bound=Sized)
"""The state that a codec replays the log into."""


class StateCodec(Protocol[EntryT_contra, ContentT]):
    """The format of one kind of coordinator's log."""

    def new_content(self) -> ContentT:
        """Return the state of an empty log."""
        ...

    def replay(self, batches: bytes, content: ContentT, /) -> list[str]:
        """Replay whole batches into `content`; return a line for each unreadable record."""
        ...

    def is_long(self, entry: EntryT_contra, /) -> bool:
        """Whether encoding the entry takes longer than a turn of the loop may."""
        ...

    def encode_entries(
        self,
        entries: Iterable[EntryT_contra],
        *,
        now_ms: int,
        part_bytes: int,
        tied: Container[int] = (),
    ) -> list[tuple[int, memoryview]]:
        """Return writable batches, in order, each with its number of entries: one batch, unless it
        would be larger than `part_bytes`. A batch is appended as a whole or not at all; the entries
        at the places `tied` are in one with those before them."""
        ...


class StateLoad(Generic[EntryT, ContentT]):
    """Loads the state once. `on_loaded` or `on_failed` is called once, unless the load is cancelled
    before."""

    def __init__(
        self,
        log: PartitionLog,
        load_codec: Callable[[], StateCodec[EntryT, ContentT]],
        background: Background,
        *,
        on_loaded: Callable[[StateCodec[EntryT, ContentT], ContentT], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`load_codec` is called in the background: codecs need Arrow, whose import takes long."""
        self.log = log
        self._load_codec = load_codec
        self._background = background
        self._on_loaded = on_loaded
        self._on_failed = on_failed
        self._told = 0
        self._offset = log.log_start_offset
        """The offset after the last batch that was replayed."""
        self._reached = self._offset
        """The real offset of the next batch: later than `_offset` when compaction has left a gap.
        Damage is reported at this offset, because it may be in another segment."""
        self.end_offset = log.log_end_offset
        """The end offset of the load, exclusive."""
        self._ends_with_a_batch = log.ends_with_a_batch
        self._cancelled = False

    def start(self) -> None:
        self._background.submit(
            self._load_codec, lambda codec: self._guarded(self._begin, codec), self._failed
        )

    def cancel(self) -> None:
        self._cancelled = True

    def _begin(self, codec: StateCodec[EntryT, ContentT]) -> None:
        self._codec = codec
        self._content = codec.new_content()
        self._next()

    def _next(self) -> None:
        if self._cancelled:
            return
        try:
            piece = self.log.reads.read(
                self._offset, max_bytes=PIECE_BYTES, max_offset=self.end_offset
            )
            job = None if piece is None else piece.load_job()
        except CorruptRecordError as failure:
            where = self.log.reads.skip_empty_segments(self._reached)
            self._failed(DamagedLogError(where, str(failure)))
            return
        except (KafkaError, OSError) as failure:
            self._failed(failure)
            return
        if piece is None or job is None:
            self._end()
        else:
            self._background.submit(
                job.run, lambda failure: self._guarded(self._warm, piece, failure), self._failed
            )

    def _end(self) -> None:
        """Check that the end of the log is reached."""
        if self._ends_with_a_batch and self._offset != self.end_offset:
            # Compaction can have taken it meanwhile; then the next load finds a log without it.
            reason = f"the log ends at offset {self.end_offset}, its last batch at {self._offset}"
            self._failed(DamagedLogError(min(self._reached, self.end_offset - 1), reason))
        else:
            self._on_loaded(self._codec, self._content)

    def _warm(self, piece: SegmentSlice, failure: KafkaError | None) -> None:
        if self._cancelled:
            return
        if isinstance(failure, CorruptRecordError):
            failure = DamagedLogError(self._reached, str(failure))
        if failure is not None:
            self._failed(failure)
            return
        try:
            data = piece.read_bytes()
        except (KafkaError, OSError) as error:
            self._failed(error)
            return
        next_offset, is_first = self._offset, self._offset == self.log.log_start_offset
        self._background.submit(
            lambda: self._replay(data, piece, next_offset, is_first),
            lambda found: self._guarded(self._replayed, piece, *found),
            self._failed,
        )

    def _replayed(self, piece: SegmentSlice, next_offset: int, troubles: list[str]) -> None:
        if self._cancelled:
            return
        self._offset, self._reached = next_offset, piece.end_offset
        for text in troubles[: TROUBLES_TOLD - self._told]:
            log.error("unreadable in the state log %s: %s", self.log.topic_partition, text)
        self._told = min(TROUBLES_TOLD, self._told + len(troubles))
        self._next()

    def _replay(
        self, data: bytes, piece: SegmentSlice, next_offset: int, is_first: bool
    ) -> tuple[int, list[str]]:
        """Return the offset after the last batch, and a line for each unreadable record. Runs in
        the background."""
        next_offset = _check(data, piece, next_offset, is_first)
        return next_offset, self._codec.replay(data, self._content)

    def _guarded(self, step: Callable[Args, None], *args: Args.args, **named: Args.kwargs) -> None:
        """Run a step; an unexpected exception ends the load, which would otherwise never end."""
        try:
            step(*args, **named)
        except Exception as failure:
            # The code that reads again logs it with its trace.
            self._failed(failure)
            if unexpected.is_fatal:
                raise

    def _failed(self, failure: Exception) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._on_failed(failure)


def _check(data: bytes, piece: SegmentSlice, next_offset: int, is_first: bool) -> int:
    """Return the offset after the last batch of the piece. Raises DamagedLogError unless all of it
    is valid batches of this place. A log may start within its first batch."""
    end = 0
    try:
        for position, header in iter_headers(data):
            end = position + header.size_in_bytes
            if header.magic != MAGIC:
                raise CorruptRecordError(f"it has magic {header.magic}")
            if not crc_matches(data, position, header.size_in_bytes):
                raise CorruptRecordError("its CRC does not match")
            begins = header.last_offset if is_first and not position else header.base_offset
            if begins < next_offset:
                raise CorruptRecordError(f"it says it begins at offset {header.base_offset}")
            next_offset = header.next_offset
        if end < len(data):
            raise CorruptRecordError("it is cut off")
        if next_offset > piece.end_offset:
            raise CorruptRecordError(f"it says it begins at offset {piece.end_offset}")
    except CorruptRecordError as failure:
        raise DamagedLogError(
            piece.nearest_offset(next_offset),
            f"the batch at offset {next_offset} is damaged: {failure}",
        ) from None
    return next_offset
