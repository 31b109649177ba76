"""One table in the thread that reads: what was read and is in no commit yet, and what is due.

    owned partitions ─► open ─► read ─► write, write, … ─► commit ─► read on
                          ▲                                  │
                          └── anything else: drop and begin anew, from what the table says

There is one way to begin: the table says how far it is, brokers say whether that is still a part of
the log, and what is not committed is read again. So an error, a partition that comes or goes, a
fence and a new schema need no way of their own.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from headrace_lake.lake_settings import TableSettings
from headrace_lake.reading.lake_reader import LakeReader, Position
from headrace_lake.reading.rows import TopicRows
from headrace_lake.service.jobs import Jobs
from headrace_lake.service.memory_budget import GROUP_BYTES, OPEN_FILE_BYTES, MemoryBudget
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms

STOPPED_RECHECK_MS = 60_000
"""A stopped table is looked at again so often: the remedy may have been applied."""
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 60_000
"""Between two tries while a store or a leader is away."""

Result = TypeVar("Result")

TEND_COMMITS = 10
"""Commits between two looks whether files are to be put together: fewer never are."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTable:
    """The table can be written; each partition goes on at its position."""

    rows: TopicRows
    positions: Mapping[TopicPartition, Position]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBatch:
    """The batch is in the table."""

    positions: Mapping[TopicPartition, Position]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaken:
    """Another instance has written these partitions meanwhile; the batch is dropped."""

    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The table must not be written until a person has done something."""

    line: str


class TableWork(Protocol):
    """The work of threads for a table, one call at a time."""

    def open(
        self, partitions: frozenset[TopicPartition], seen: FetchedBatches | None
    ) -> OpenedTable | Stopped:
        """Drop what was written and not committed; find out where to go on. `seen`: batches of a
        later schema than was known."""
        ...

    def write(self, batches: list[pa.RecordBatch]) -> int:
        """Add rows to the open files; the bytes that these have now."""
        ...

    def commit(
        self, batches: list[pa.RecordBatch], positions: Mapping[TopicPartition, Position]
    ) -> CommittedBatch | Overtaken | Stopped:
        """Add rows, and commit all that was written, with these ends."""
        ...

    def tend(self) -> None:
        """Compact small files and the like, if it is time to."""
        ...

    def drop(self) -> None:
        """Remove what was written and not committed."""
        ...


@dataclass(slots=True)
class TableFigures:
    """The work of an instance for a table since its start."""

    rows: int = 0
    commits: int = 0
    dropped: int = 0
    """Batches that were dropped and read again."""
    failures: int = 0
    last_commit_ms: int = 0
    """0: none yet."""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """The end of the committed records, as last heard."""


class _Packed(NamedTuple):
    """An answer for one partition, whose rows are made one after the other."""

    tp: TopicPartition
    position: Position
    """Behind all of it."""
    batches: Iterator[pa.RecordBatch]


class TableTask:
    """For one thread."""

    def __init__(
        self,
        settings: TableSettings,
        work: TableWork,
        reader: LakeReader,
        budget: MemoryBudget,
        jobs: Jobs,
        on_committed: Callable[[Mapping[TopicPartition, Position]], None],
    ) -> None:
        self.settings = settings
        self.figures = TableFigures()
        self.line = ""
        """Why the table stands still; empty while it does not."""
        self.is_stopped = False
        """Whether a person has to do something."""
        self._work = work
        self._reader = reader
        self._budget = budget
        self._jobs = jobs
        self._on_committed = on_committed
        self._owned: frozenset[TopicPartition] = frozenset()
        self._rows: TopicRows | None = None
        """None: not open."""
        self._positions: dict[TopicPartition, Position] = {}
        self._committed: dict[TopicPartition, Position] = {}
        self._packed: deque[_Packed] = deque()
        """Answers that are not whole in `_pending`; of the first some rows may be."""
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._file_bytes = 0
        self._open_bytes = 0
        """Kept in memory of open files."""
        self._since_ms: int | None = None
        """When the first of what is in no commit was read."""
        self._seen: FetchedBatches | None = None
        """Batches of a later schema, for which the table is opened anew after a commit."""
        self._is_paused = False
        self._is_busy = False
        self._job_bytes = 0
        self._round = 0
        """Counts beginnings: a job of an earlier round has no say any more."""
        self._open_at_ms = 0
        self._tries = 0
        self._untended_commits = 0

    # --- partitions ---

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._owned

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """How far the table is, of the partitions of this instance."""
        return self._committed

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work for it."""
        return self._is_busy

    @property
    def held_bytes(self) -> int:
        """The memory that a commit would free."""
        return self._pending_bytes + self._open_bytes

    @property
    def lag_records(self) -> int:
        """The offsets between the table and the ends of its partitions, as last heard."""
        behind = (
            self.figures.ends[tp] - position.offset
            for tp, position in self._committed.items()
            if tp in self.figures.ends
        )
        return sum(max(0, each) for each in behind)

    def own(self, partitions: frozenset[TopicPartition]) -> None:
        """Write these partitions from now on, and no others."""
        if partitions != self._owned:
            self._owned = partitions
            self._begin_anew(0)

    def failed(self, tp: TopicPartition, error: HeadraceError) -> None:
        """A partition can't be read on."""
        self._wait(str(error) if str(tp) in str(error) else f"{tp}: {error}")

    def _begin_anew(self, at_ms: int) -> None:
        """Drop what is in no commit, and open the table at that time."""
        self._round += 1
        for tp in self._positions:
            self._reader.end(tp)
        if self._since_ms is not None:
            self.figures.dropped += 1
        self._drop_pending()
        self._positions, self._rows, self._since_ms = {}, None, None
        self._file_bytes = 0
        self._is_paused = False
        self._open_at_ms = at_ms

    def _drop_pending(self) -> None:
        self._budget.give(self._pending_bytes + self._open_bytes)
        self._pending, self._pending_bytes, self._open_bytes = [], 0, 0
        self._packed.clear()

    # --- what was read ---

    def take(self, fetched: FetchedBatches, now_ms: int) -> None:
        """Take batches in, if they are the next of their partition."""
        rows = self._rows
        if rows is None or self._seen is not None or fetched.typed_want != rows.want:
            return
        if rows.outdated_by(fetched) is not None:
            # What was read before it is committed first, by the schema that it has.
            self._seen = fetched
            for tp in self._positions:
                self._reader.end(tp)
            return
        position = self._reader.consumed(fetched)
        if position is None:
            return
        self.figures.ends[fetched.tp] = fetched.last_stable_offset
        if self._since_ms is None:
            self._since_ms = now_ms
        self._packed.append(_Packed(fetched.tp, position, rows.batches(fetched)))
        self._unpack()

    def _unpack(self) -> None:
        """Make rows of what has come, as far as there is room: a few bytes may be many rows. The
        position moves with the last of them, and nothing is committed before."""
        most = GROUP_BYTES if self._budget.is_full else self._budget.table_limit
        while self._packed and self._pending_bytes < most:
            packed = self._packed[0]
            try:
                batch = next(packed.batches, None)
            except HeadraceError as error:
                self.failed(packed.tp, error)
                return
            if batch is None:
                self._positions[packed.tp] = packed.position
                self._packed.popleft()
            else:
                self._pending.append(batch)
                self._pending_bytes += batch.nbytes
                self._budget.take(batch.nbytes)
        is_enough = self._pending_bytes >= self._budget.table_limit
        self._pause(paused=is_enough or bool(self._packed))

    def _pause(self, *, paused: bool) -> None:
        if paused != self._is_paused:
            self._is_paused = paused
            for tp in self._positions:
                self._reader.pause(tp, paused=paused)

    # --- what is due ---

    def step(self, now_ms: int, *, needs_room: bool = False) -> None:
        """Begin what is due, unless a thread is at work. `needs_room`: commit also few rows."""
        if self._is_busy or not self._owned:
            return
        if self._packed:
            self._unpack()
        if self._rows is None:
            if now_ms >= self._open_at_ms:
                self._start(partial(self._work.open, self._owned, self._seen), self._opened)
            return
        if self._untended_commits >= TEND_COMMITS:
            self._untended_commits = 0
            self._start(self._work.tend, lambda _: None, self._untended)
        elif self._since_ms is None:
            if self._seen is not None:
                self._begin_anew(0)
        elif not self._packed and (needs_room or self._is_commit_due(now_ms)):
            self._commit()
        elif self._packed or self._pending_bytes >= GROUP_BYTES:
            if not self._open_bytes:
                self._open_bytes = OPEN_FILE_BYTES
                self._budget.take(OPEN_FILE_BYTES)
            self._start(partial(self._work.write, self._taken()), self._wrote)

    def _is_commit_due(self, now_ms: int) -> bool:
        assert self._since_ms is not None
        return (
            self._seen is not None
            or now_ms - self._since_ms >= self.settings.commit_interval_ms
            or self._file_bytes >= self.settings.file_bytes
        )

    def due_ms(self) -> int | None:
        """When `step` has something to do by time alone; None: not before something comes."""
        if self._is_busy or not self._owned:
            return None
        if self._rows is None:
            return self._open_at_ms
        if self._since_ms is None:
            return None
        return self._since_ms + self.settings.commit_interval_ms

    def _taken(self) -> list[pa.RecordBatch]:
        batches, self._pending = self._pending, []
        self._job_bytes, self._pending_bytes = self._pending_bytes, 0
        self._pause(paused=bool(self._packed))
        return batches

    def _commit(self) -> None:
        moved = {
            tp: position
            for tp, position in self._positions.items()
            if position != self._committed.get(tp)
        }
        batches = self._taken()
        self._since_ms, self._file_bytes = None, 0
        self._job_bytes += self._open_bytes
        self._open_bytes = 0
        self._start(partial(self._work.commit, batches, moved), self._was_committed)

    def _start(
        self,
        work: Callable[[], Result],
        then: Callable[[Result], None],
        otherwise: Callable[[Exception], None] | None = None,
    ) -> None:
        self._is_busy = True
        current = self._round

        def ended() -> bool:
            self._is_busy = False
            self._budget.give(self._job_bytes)
            self._job_bytes = 0
            return current == self._round

        def done(result: Result) -> None:
            if ended():
                then(result)

        def failed(error: Exception) -> None:
            if ended():
                (otherwise or self._failed)(error)

        self._jobs.start(work, done, failed)

    # --- how it ended ---

    def _opened(self, result: OpenedTable | Stopped) -> None:
        if isinstance(result, Stopped):
            self._stop(result.line)
            return
        if self.line:
            log.info("topic '%s' is written again into %s", *self._names)
        self.line, self.is_stopped, self._seen = "", False, None
        self._rows = result.rows
        self._positions = dict(result.positions)
        self._committed = dict(result.positions)
        for tp, position in result.positions.items():
            self._reader.begin(tp, position, result.rows.topic_id, result.rows.want)

    def _wrote(self, file_bytes: int) -> None:
        self._file_bytes = file_bytes

    def _was_committed(self, result: CommittedBatch | Overtaken | Stopped) -> None:
        match result:
            case CommittedBatch():
                self._committed |= result.positions
                self._tries = 0
                self.figures.commits += 1
                self.figures.rows += result.rows
                self.figures.last_commit_ms = time.time_ns() // 1_000_000
                self._untended_commits += 1
                self._on_committed(result.positions)
            case Overtaken():
                log.info("topic '%s', %s: %s", *self._names, result.line)
                self._begin_anew(0)
            case Stopped():
                self._stop(result.line)

    def _failed(self, error: Exception) -> None:
        self._wait(self._told(error))

    def _untended(self, error: Exception) -> None:
        """The next commit brings the next try."""
        log.warning("topic '%s', %s: not compacted: %s", *self._names, self._told(error))

    def _told(self, error: Exception) -> str:
        if not isinstance(error, HeadraceError | OSError):
            # A bug: said whole, and tried again like an error of the store.
            log.error("topic '%s', %s", *self._names, exc_info=error)
        self.figures.failures += 1
        return " ".join(str(error).split())

    def _wait(self, line: str) -> None:
        pause_ms = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(self._tries, 6))
        self._tries += 1
        if line != self.line:
            log.warning("topic '%s', %s: %s; it is tried again", *self._names, line)
        self.line, self.is_stopped = line, False
        self._begin_anew(monotonic_ms() + pause_ms)

    def _stop(self, line: str) -> None:
        if line != self.line:
            log.error("topic '%s', %s: stopped: %s", *self._names, line)
        self.line, self.is_stopped = line, True
        self._begin_anew(monotonic_ms() + STOPPED_RECHECK_MS)

    def let_go(self, why: str) -> None:
        """Drop what was read, and what waits for a thread that hangs."""
        self._wait(why)

    def finish(self) -> bool:
        """Commit what was read; whether there is still something to wait for."""
        if self._is_busy:
            return True
        if self._rows is None or self._since_ms is None:
            return False
        if self._packed:
            self.step(monotonic_ms())
        else:
            self._commit()
        return True

    @property
    def _names(self) -> tuple[str, str]:
        return self.settings.topic, self.settings.location

    def close(self) -> None:
        """Read nothing more, and remove what was written and not committed."""
        self._owned = frozenset()
        self._begin_anew(0)
        self._jobs.start(self._work.drop, lambda _: None, lambda _: None)
