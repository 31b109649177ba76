"""A small world in which two writers, a sweep and a compaction work at one table of one partition.

Everything that can happen is a step: each of them yields the states that may follow. What is
decided, the real functions of `headrace_lake.protocol` decide, through `Rules`, and for the leader
those of `storage_engine.core.replication`: a fetch is one step, in which the leader compares what
is before its position, and gives rows or refuses.

The store takes a commit for a version once. Its answer may be lost, and a commit that failed may
still come later, until another one has taken its version. The log may lose its end and give the
offsets to other records, with a new leader epoch; the topic may be made anew. Any writer may stop
at any moment. Nothing keeps two writers from working at the same time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from headrace_lake.protocol.attempts import (
    AttemptDecision,
    TableBatch,
    TableState,
    decide,
    may_replace,
)
from headrace_lake.protocol.foreign_changes import TableChange, check_changes
from headrace_lake.protocol.progress import LakeProgress
from headrace_lake.protocol.resuming import LogAnswer, resume
from headrace_lake.protocol.stops import TableStoppedError
from storage_engine.core.ids import NO_EPOCH
from storage_engine.core.replication.leader_epochs import EpochEnd, LeaderEpochCache, divergence

NAME = "t-0"
MARKER = "marker"


class Record(NamedTuple):
    """A record knows the one before it, so a chain of records was one log at some time."""

    epoch: int
    value: int
    before: int
    """The value of the record before it; the topic's generation, negative, for the first."""


class Log(NamedTuple):
    generation: int = 0
    epoch: int = 0
    start: int = 0
    records: tuple[Record, ...] = ()
    values_given: int = 0
    lost: tuple[Record, ...] = ()
    """What an earlier leader had before an election: a replica may bring it back."""

    @property
    def topic_id(self) -> UUID:
        return topic_of(self.generation)

    def epoch_end(self, asked: int) -> EpochEnd:
        """What the leader answers to OffsetForLeaderEpoch."""
        return epochs_of(self).end_offset_for(asked, len(self.records))

    def parting(self, offset: int, epoch: int) -> tuple[int, int] | None:
        """What the leader answers to a fetch in place of rows: the epoch and offset at which its
        log ends to be the one that was read; None: it is still that one."""
        return divergence(
            epochs_of(self),
            log_end_offset=len(self.records),
            fetch_offset=offset,
            last_fetched_epoch=epoch,
        )


@lru_cache(maxsize=10_000)
def epochs_of(log: Log) -> LeaderEpochCache:
    epochs = LeaderEpochCache()
    for offset, record in enumerate(log.records):
        epochs.assign(record.epoch, offset)
    epochs.assign(log.epoch, len(log.records))
    epochs.truncate_from_start(log.start)
    return epochs


class Commit(NamedTuple):
    kind: str
    """rows, sweep, replace, delete or accept."""
    commit_id: str = ""
    file: int = 0
    rows: tuple[tuple[int, Record], ...] = ()
    """Offsets and records, in the file."""
    end: tuple[int, int] | None = None
    """The end offset and the epoch before it, where it says them."""
    removed: frozenset[int] = frozenset()


class Attempt(NamedTuple):
    """A commit that may still come."""

    version: int
    commit: Commit


class Writer(NamedTuple):
    phase: str = "down"
    """down, loaded, reading, stopped."""
    version: int = 0
    stale: bool = False
    start: tuple[int, int] | None = None
    """Where the batch begins."""
    position: tuple[int, int] | None = None
    rows: tuple[tuple[int, Record], ...] = ()
    file: int = 0
    base: int = 0
    commit_id: str = ""


class Upkeep(NamedTuple):
    phase: str = "idle"
    """idle, loaded, marked, over."""
    version: int = 0
    base: int = 0
    files: frozenset[int] = frozenset()
    new: int = 0


class State(NamedTuple):
    log: Log = Log()
    commits: tuple[Commit, ...] = (Commit("create"),)
    in_flight: frozenset[Attempt] = frozenset()
    files: frozenset[int] = frozenset()
    """In the store, whether a commit names them or not."""
    writers: tuple[Writer, ...] = ()
    sweep: Upkeep = Upkeep()
    compactions: tuple[Upkeep, ...] = ()
    with_files: bool = False
    """Whether it matters which files are there; else a batch has one when it is committed."""
    files_given: int = 0
    batches_given: int = 0
    crashes: int = 0
    errors: int = 0
    elections: int = 0
    deletes: int = 0
    retained: int = 0
    was_fenced: bool = False


class BrokenError(AssertionError):
    """A promise is broken."""


class Rules:
    """The protocol as it is; a mutation overrides one of its rules."""

    retries_behind_others = False
    """The library would: it is told not to."""

    def resume(self, progress: LakeProgress | None, answer: LogAnswer) -> LakeProgress:
        return resume(NAME, topic_of(0), progress, answer)

    def fetched_id(self, log: Log) -> UUID:
        return topic_of(0)

    def fetched_epoch(self, writer: Writer) -> int:
        """The epoch that a fetch says of the record before its position."""
        assert writer.position is not None
        return writer.position[1]

    def rows_at(self, log: Log, offset: int) -> list[Record]:
        """What the leader may give that has not refused the fetch."""
        return [log.records[offset]] if offset < len(log.records) else []

    def refused(self, writer: Writer, end_offset: int) -> Writer:
        """The writer after its log was found to part at an offset from that of the leader."""
        return Writer()

    def decide(self, batch: TableBatch, table: TableState) -> AttemptDecision:
        return decide(batch, table)

    def check(self, change: TableChange) -> None:
        check_changes(NAME, [change], MARKER, accepted_version=-1)

    def may_replace(
        self, files: frozenset[str], base: int, active: frozenset[str], table: TableState
    ) -> bool:
        return may_replace(files, base, active, table)

    def marks_sweeps(self) -> bool:
        return True

    def base_version(self, writer: Writer) -> int:
        return writer.base


@dataclass(frozen=True)
class World:
    """How much may happen."""

    records: int = 2
    batch: int = 2
    """The most records of a batch."""
    batches: int = 3
    elections: int = 0
    """Unclean ones, and those that lose nothing."""
    recreations: int = 0
    crashes: int = 0
    errors: int = 0
    writers: int = 2
    sweeps: int = 0
    compactions: int = 0
    deletes: int = 0
    retained: int = 0

    ready: int = 0
    """Records that are there at the start."""

    def start(self) -> State:
        """Return the world before anything happened."""
        records: tuple[Record, ...] = ()
        for value in range(1, self.ready + 1):
            records = (*records, Record(0, value, value - 1 if value > 1 else -1))
        log = Log(records=records, values_given=self.ready)
        return State(
            log=log,
            with_files=bool(self.sweeps or self.compactions),
            writers=(Writer(),) * self.writers,
            compactions=(Upkeep(),) * self.compactions,
        )

    def successors(self, state: State, rules: Rules) -> Iterator[State]:
        yield from self._log_steps(state)
        for attempt in state.in_flight:
            left = state._replace(in_flight=state.in_flight - {attempt})
            if attempt.version == len(state.commits):
                yield left._replace(commits=(*state.commits, attempt.commit))
        for number in range(self.writers):
            yield from self._writer_steps(state, number, rules)
        if state.deletes < self.deletes and active_files(state.commits):
            gone = Commit("delete", removed=active_files(state.commits))
            yield state._replace(commits=(*state.commits, gone), deletes=state.deletes + 1)
        if self.sweeps:
            yield from _sweep_steps(state, rules)
        for number in range(self.compactions):
            yield from _compaction_steps(state, number, rules)

    def _log_steps(self, state: State) -> Iterator[State]:
        log = state.log
        if log.values_given < self.records:
            before = log.records[-1].value if log.records else -1 - log.generation
            record = Record(log.epoch, log.values_given + 1, before)
            yield state._replace(
                log=log._replace(records=(*log.records, record), values_given=log.values_given + 1)
            )
        if state.elections < self.elections:
            kept = {log.records[:end] for end in range(log.start, len(log.records) + 1)}
            for records in sorted(kept | ({log.lost} if len(log.lost) >= log.start else set())):
                changed = log._replace(
                    epoch=log.epoch + 1,
                    records=records,
                    lost=log.records if self.elections > 1 else (),
                )
                yield state._replace(log=changed, elections=state.elections + 1)
        if log.generation < self.recreations:
            yield state._replace(
                log=Log(generation=log.generation + 1, values_given=log.values_given)
            )
        if state.retained < self.retained and log.start < len(log.records):
            yield state._replace(log=log._replace(start=log.start + 1), retained=state.retained + 1)

    def _writer_steps(self, state: State, number: int, rules: Rules) -> Iterator[State]:
        writer = state.writers[number]
        if writer.phase == "stopped":
            return
        if writer.phase == "down":
            # It begins when there is something to do.
            if len(state.log.records) > state.log.start or state.commits[1:]:
                yield from _loaded(state, number, Writer(), rules)
            return
        if state.crashes < self.crashes:
            yield _with(state._replace(crashes=state.crashes + 1), number, Writer())
        if writer.phase == "loaded":
            yield _asked(state, number, rules)
        elif writer.stale:
            yield from _loaded(state, number, writer, rules)
        else:
            if not writer.commit_id and len(writer.rows) < self.batch and not writer.stale:
                yield from self._read(state, number, rules)
            if writer.rows:
                yield from self._commit(state, number, rules)

    def _read(self, state: State, number: int, rules: Rules) -> Iterator[State]:
        """A fetch, and its answer."""
        writer, log = state.writers[number], state.log
        assert writer.position is not None
        if not writer.rows and state.batches_given >= self.batches:
            return
        offset = writer.position[0]
        if rules.fetched_id(log) != log.topic_id:
            yield _with(state, number, Writer())
        elif (parting := log.parting(offset, rules.fetched_epoch(writer))) is not None:
            yield _heard(state, number, rules.refused(writer, parting[1]))
        elif not log.start <= offset <= len(log.records):
            yield _with(state, number, Writer())
        else:
            for record in rules.rows_at(log, offset):
                yield _added(state, number, writer, (offset, record))

    def _commit(self, state: State, number: int, rules: Rules) -> Iterator[State]:
        writer = state.writers[number]
        if not writer.commit_id:
            writer = writer._replace(commit_id=f"batch {state.batches_given}")
            if not state.with_files:
                writer = writer._replace(file=state.batches_given + 1)
            state = state._replace(batches_given=state.batches_given + 1)
        position = as_progress(writer.position)
        assert position is not None
        batch = TableBatch(
            commit_id=writer.commit_id,
            base_version=rules.base_version(writer),
            starts={0: as_progress(writer.start)},
            ends={0: position},
        )
        decision = rules.decide(batch, table_state(state, writer.version))
        if decision is AttemptDecision.COMMITTED:
            check_told(state, writer)
            yield _with(state, number, _next_batch(writer))
        elif decision is AttemptDecision.FENCED:
            fenced = state._replace(was_fenced=True)
            yield _with(fenced, number, Writer("loaded", writer.version))
        elif decision is AttemptDecision.WRITE_ANEW:
            file = state.files_given + 1
            anew = writer._replace(file=file, base=writer.version)
            yield _with(state._replace(files=state.files | {file}, files_given=file), number, anew)
        else:
            yield from self._attempted(state, number, writer, rules)

    def _attempted(
        self, state: State, number: int, writer: Writer, rules: Rules
    ) -> Iterator[State]:
        commit = Commit("rows", writer.commit_id, writer.file, writer.rows, writer.position)
        version = len(state.commits) if rules.retries_behind_others else writer.version + 1
        stale = _with(state, number, writer._replace(stale=True))
        if version == len(state.commits):
            there = state._replace(commits=(*state.commits, commit))
            # The answer came: the commit is read back with the next version.
            yield _with(there, number, writer._replace(stale=True))
        else:
            yield stale
        if state.errors < self.errors:
            # It failed, or will come later; a lost answer is one that came later.
            counted = stale._replace(errors=state.errors + 1)
            yield counted
            if version == len(state.commits):
                attempt = Attempt(version, commit)
                yield counted._replace(in_flight=state.in_flight | {attempt})


def topic_of(generation: int) -> UUID:
    return UUID(int=generation + 1)


def as_progress(at: tuple[int, int] | None) -> LakeProgress | None:
    return None if at is None else LakeProgress(end_offset=at[0], leader_epoch=at[1])


def table_state(state: State, version: int) -> TableState:
    end, swept = None, -1
    ids = set()
    for number, commit in enumerate(state.commits[: version + 1]):
        if commit.end is not None:
            end = commit.end
        if commit.kind == "sweep":
            swept = number
        ids.add(commit.commit_id)
    progress = as_progress(end)
    return TableState(
        version=version,
        progress={} if progress is None else {0: progress},
        swept_version=swept,
        landed=frozenset(ids - {""}),
    )


def active_files(commits: tuple[Commit, ...]) -> frozenset[int]:
    active: frozenset[int] = frozenset()
    for commit in commits:
        active -= commit.removed
        if commit.file:
            active |= {commit.file}
    return active


def table_rows(commits: tuple[Commit, ...]) -> list[tuple[int, Record]]:
    active = active_files(commits)
    rows = [row for each in commits if each.file in active for row in each.rows]
    return sorted(rows, key=lambda row: (row[0], row[1].value))


def check_told(state: State, writer: Writer) -> None:
    if state.deletes == 0 and not set(writer.rows) <= set(table_rows(state.commits)):
        raise BrokenError(f"{writer.rows} were told to be in the table")


def check(state: State) -> None:
    """What must be true of each state."""
    rows = table_rows(state.commits)
    if state.deletes == 0:
        for expected, (offset, _) in enumerate(rows, state.log.start if not rows else rows[0][0]):
            if offset != expected:
                raise BrokenError(f"offset {offset} stands where {expected} should: {rows}")
        for (_, one), (_, other) in pairwise(rows):
            if other.before != one.value:
                raise BrokenError(f"{other} was never behind {one}")
        ends = [each.end[0] for each in state.commits if each.end is not None]
        if ends and (not rows or ends[-1] != rows[-1][0] + 1):
            raise BrokenError(f"the table says that it ends at {ends[-1]}, and has {rows}")
        if rows and rows[0][1].before >= 0 and not state.retained:
            raise BrokenError(f"the table does not begin at the log's beginning: {rows}")
    lost = active_files(state.commits) - state.files
    if lost and state.with_files:
        raise BrokenError(f"files {lost} of the table were removed")
    for number, commit in enumerate(state.commits):
        if commit.kind == "delete" and any(
            each.kind in ("rows", "replace") for each in state.commits[number + 1 :]
        ):
            raise BrokenError("a commit stands behind a change of others")


def _with(state: State, number: int, writer: Writer) -> State:
    # Which of the two is which makes no difference.
    others = state.writers[:number] + state.writers[number + 1 :]
    return state._replace(writers=tuple(sorted((*others, writer), key=repr)))


def _loaded(state: State, number: int, writer: Writer, rules: Rules) -> Iterator[State]:
    """Load the newest version, and look at what others did since the one before."""
    newest = len(state.commits) - 1
    walked = writer.version
    if writer.phase == "down":
        own = [n for n, each in enumerate(state.commits) if each.kind != "delete"]
        walked = own[-1]
    if not all(_is_allowed(state, each, rules) for each in range(walked + 1, newest + 1)):
        yield _with(state, number, Writer("stopped"))
        return
    phase = "loaded" if writer.phase == "down" else writer.phase
    yield _with(
        state,
        number,
        writer._replace(phase=phase, version=newest, stale=False),
    )


def as_change(version: int, commit: Commit) -> TableChange:
    is_ours = commit.kind != "delete"
    return TableChange(
        version=version,
        operation="WRITE" if is_ours else "DELETE",
        commit_id=commit.commit_id or None,
        applications={MARKER: version} if is_ours else {},
        files_appended=int(commit.kind == "rows"),
        files_taken=len(commit.removed) if commit.kind == "delete" else 0,
    )


def _answer(log: Log, progress: LakeProgress | None) -> LogAnswer:
    return LogAnswer(
        topic_id=log.topic_id,
        start_offset=log.start,
        end_offset=len(log.records),
        epoch_end=None if progress is None else log.epoch_end(progress.leader_epoch),
    )


def _asked(state: State, number: int, rules: Rules) -> State:
    """Ask the log where to go on from the table's progress."""
    writer, log = state.writers[number], state.log
    progress = table_state(state, writer.version).progress.get(0)
    try:
        found = rules.resume(progress, _answer(log, progress))
    except TableStoppedError:
        return _heard(state, number, Writer("stopped", writer.version))
    position = (found.end_offset, int(found.leader_epoch))
    start = None if progress is None else (progress.end_offset, int(progress.leader_epoch))
    reading = writer._replace(phase="reading", start=start, position=position)
    return _heard(state, number, reading)


def _heard(state: State, number: int, writer: Writer) -> State:
    """The state with a writer that has just heard of this very log."""
    log = state.log
    if writer.phase == "stopped":
        known = table_state(state, writer.version).progress.get(0)
        place = (log.start, NO_EPOCH) if known is None else (known.end_offset, known.leader_epoch)
        if not log.generation and log.start <= place[0] and log.parting(*place) is None:
            raise BrokenError(f"the log has what the table holds up to {place}, and it stops")
        writer = Writer("stopped")
    elif writer.position is not None and log.parting(*writer.position) is not None:
        raise BrokenError(f"the fetch from {writer.position} is refused, again and again")
    return _with(state, number, writer)


def _added(state: State, number: int, writer: Writer, row: tuple[int, Record]) -> State:
    if not writer.rows and state.with_files:
        file = state.files_given + 1
        state = state._replace(files=state.files | {file}, files_given=file)
        writer = writer._replace(file=file, base=writer.version)
    return _with(
        state,
        number,
        writer._replace(
            phase="reading", rows=(*writer.rows, row), position=(row[0] + 1, row[1].epoch)
        ),
    )


def _next_batch(writer: Writer) -> Writer:
    return Writer(
        "reading",
        writer.version,
        writer.stale,
        start=writer.position,
        position=writer.position,
    )


def _sweep_steps(state: State, rules: Rules) -> Iterator[State]:
    """Each file that no commit names is old enough: no clock helps."""
    sweep, newest = state.sweep, len(state.commits) - 1
    if sweep.phase == "idle":
        named = frozenset(each.file for each in state.commits)
        found = state.files - named
        if found:
            yield state._replace(sweep=Upkeep("loaded", newest, files=found))
    elif sweep.phase == "loaded":
        marked = state._replace(sweep=sweep._replace(phase="marked"))
        if not rules.marks_sweeps():
            yield marked
        elif newest == sweep.version:
            yield marked._replace(commits=(*state.commits, Commit("sweep", "sweep")))
        else:
            yield state._replace(sweep=Upkeep("over"))
    elif sweep.phase == "marked":
        yield state._replace(files=state.files - sweep.files, sweep=Upkeep("over"))


def _compaction_steps(state: State, number: int, rules: Rules) -> Iterator[State]:
    compaction, newest = state.compactions[number], len(state.commits) - 1
    active = active_files(state.commits)
    if compaction.phase == "idle" and len(active) > 1:
        file = state.files_given + 1
        begun = Upkeep("loaded", newest, newest, active, file)
        with_file = state._replace(files=state.files | {file}, files_given=file)
        yield _with_compaction(with_file, number, begun)
    elif compaction.phase == "loaded":
        loaded = table_state(state, compaction.version)
        names = frozenset(map(str, compaction.files))
        there = frozenset(map(str, active_files(state.commits[: compaction.version + 1])))
        if not rules.may_replace(names, compaction.base, there, loaded):
            yield _with_compaction(state, number, Upkeep("over"))
        elif compaction.version < newest:
            changes = range(compaction.version + 1, newest + 1)
            if all(_is_allowed(state, version, rules) for version in changes):
                yield _with_compaction(state, number, compaction._replace(version=newest))
            else:
                yield _with_compaction(state, number, Upkeep("over"))
        else:
            rows = tuple(
                row for each in state.commits if each.file in compaction.files for row in each.rows
            )
            commit = Commit("replace", "compaction", compaction.new, rows, None, compaction.files)
            there_now = state._replace(commits=(*state.commits, commit))
            yield _with_compaction(there_now, number, Upkeep("over"))


def _is_allowed(state: State, version: int, rules: Rules) -> bool:
    try:
        rules.check(as_change(version, state.commits[version]))
    except TableStoppedError:
        return False
    return True


def _with_compaction(state: State, number: int, compaction: Upkeep) -> State:
    changed = list(state.compactions)
    changed[number] = compaction
    return state._replace(compactions=tuple(sorted(changed, key=repr)))
