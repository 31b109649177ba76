"""The rules of named batch writes as a model: every interleaving of a few writers, checked state by
state. It knows nothing of the code, so that both can be held against the same rules.

    writer        joins -> writes -> asks to commit -> is told; a killed one takes no further step
    network       a request for a commit arrives late, often or never; an answer may be lost, and
                  then the identical request comes again; a lost answer to a join is a second join
    coordinator   `now` is what its log says, `safe` what is replicated; it fails over to `safe`
    folding       what a settled number's own record says moves into the intervals of its part
    timeout       an open transaction is aborted

What is told is never more than `safe` says. A writer of the same number, part and owner is the same
job again; an owner is a streaming query that writes in `foreachBatch`, or nobody's (""). A `stream`
is such a query that writes its micro-batches itself: one record has its runs and its last number.
An `empty` writer has no rows, joins with nobody, and commits no members.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from storage_engine.tests.core.transactions.sinks.exploring import explored

COMMITTED, ALREADY, TAKEN, REPLACED, LOST, NOT_COMMITTED = (
    "committed",
    "already committed",
    "number of another query",
    "run replaced",
    "member lost",
    "not committed",
)
OPEN, WON, ABORTED = "open", "won", "aborted"
IDLE, JOINING, WRITING, DRAINED, ASKED, ENDED, REFUSED = range(7)

Key = tuple[str, int]
"""(part, number)."""


@dataclass(frozen=True)
class Writer:
    """One life of a job."""

    number: int
    part: str = "t"
    owner: str = ""
    run: str = ""
    stream: bool = False
    empty: bool = False

    @property
    def key(self) -> Key:
        return self.part, self.number


class Query(NamedTuple):
    """The record of a streaming query."""

    last: int = -1
    """The number of the last micro-batch of a stream."""
    runs: tuple[str, ...] = ()
    """In the order in which they came, as the rules keep them."""


class Kept(NamedTuple):
    """The content of the coordinator's log."""

    members: tuple[tuple[int, int, str], ...] = ()
    """(producer id, writer, status) of each transaction."""
    records: frozenset[tuple[Key, str]] = frozenset()
    """(number, its owner) of numbers that have a record of their own."""
    folded: frozenset[tuple[Key, str]] = frozenset()
    """The same of numbers that lie in an interval."""
    queries: tuple[tuple[str, Query], ...] = ()
    """By name, each one record."""
    empty: frozenset[tuple[Key, int]] = frozenset()
    """(number, writer) that are committed without members."""
    came: tuple[tuple[str, str], ...] = ()
    """(owner, run), in the order in which they came."""

    def query(self, name: str) -> Query:
        return dict(self.queries).get(name, Query())

    def with_query(self, name: str, query: Query) -> "Kept":
        return self._replace(queries=tuple(sorted({**dict(self.queries), name: query}.items())))


class State(NamedTuple):
    """A state of the world."""

    phases: tuple[int, ...]
    named: tuple[int, ...]
    """By writer: the producer id that its driver knows of; -1 for none."""
    now: Kept = Kept()
    safe: Kept = Kept()
    pending: frozenset[tuple[int, str]] = frozenset()
    """Answers that wait for replication."""
    told: frozenset[tuple[int, str]] = frozenset()
    """Answers that are on their way, or came."""
    given_out: int = 0
    """Producer ids: none is given out twice."""
    joins: int = 0
    failovers: int = 0
    timeouts: int = 0


class Broken(AssertionError):
    """A promise is broken."""


class Rules:
    """The coordinator's rules for a request; a mutation overrides one of them."""

    def committed_by(self, kept: Kept, writer: Writer) -> str | None:
        """The owner under which the writer's number is committed."""
        if writer.stream:
            return writer.owner if writer.number <= kept.query(writer.owner).last else None
        for key, owner in kept.records | kept.folded:
            if key == writer.key:
                return owner
        return None

    def is_taken(self, owner: str, writer: Writer) -> bool:
        return owner != writer.owner

    def is_replaced(self, kept: Kept, writer: Writer) -> bool:
        return writer.run in kept.query(writer.owner).runs[:-1]

    def with_run(self, kept: Kept, writer: Writer) -> Kept:
        query = kept.query(writer.owner)
        if not writer.owner or writer.run in query.runs:
            return kept
        return kept.with_query(writer.owner, query._replace(runs=(*query.runs, writer.run)))

    def stream_commit(self, before: Query, noted: Query, writer: Writer) -> Query:
        """The next record of a stream; `before`: the one before the run of the request was
        noted."""
        return noted._replace(last=writer.number)

    def verdict(self, kept: Kept, writer: Writer) -> str | None:
        """Return the answer of join and commit without a look at members; None: they go on."""
        if self.is_replaced(kept, writer):
            return REPLACED
        owner = self.committed_by(kept, writer)
        if owner is None:
            return None
        return TAKEN if self.is_taken(owner, writer) else ALREADY

    def sweeps(self, writer: Writer, other: Writer) -> bool:
        return other.key == writer.key

    def is_settled(self, state: State) -> bool:
        """Whether a commit may look at the records, and folding move them."""
        return state.now == state.safe

    def waits_for_replication(self) -> bool:
        return True

    def looks_at_members_first(self) -> bool:
        return False

    def commits_without_members(self) -> bool:
        return False

    def folded(self, entry: tuple[Key, str]) -> frozenset[tuple[Key, str]]:
        return frozenset({entry})

    def record_of(self, writer: Writer) -> tuple[Key, str]:
        return writer.key, writer.owner


@dataclass(frozen=True)
class World:
    """The writers, and the number of faults that may befall them."""

    writers: tuple[Writer, ...]
    failovers: int = 1
    timeouts: int = 0
    second_joins: int = 0

    def start(self) -> State:
        count = len(self.writers)
        return State(phases=(IDLE,) * count, named=(-1,) * count)

    # --- what may happen ---

    def successors(self, state: State, rules: Rules) -> Iterator[State]:
        for at, writer in enumerate(self.writers):
            phase = state.phases[at]
            if phase == IDLE and self._may_begin(state, writer):
                yield self._begin(state, at, writer, rules)
            if phase == WRITING and state.joins < self.second_joins:
                yield self._join(state, at, writer, rules)
            if phase == JOINING:
                yield self._joined(state, at, writer, rules)
            if phase in (WRITING, DRAINED):
                yield _moved(state, at, ASKED)
            if phase in (ASKED, ENDED):
                yield self._commit(state, at, writer, rules)
            if phase == ASKED and any(each == at for each, _ in state.told):
                yield _moved(state, at, ENDED)
        if state.now != state.safe or state.pending:
            yield state._replace(
                safe=state.now, told=state.told | state.pending, pending=frozenset()
            )
            if state.failovers < self.failovers:
                yield state._replace(
                    now=state.safe, pending=frozenset(), failovers=state.failovers + 1
                )
        if rules.is_settled(state):
            yield from self._folds(state, rules)
        if state.timeouts < self.timeouts:
            yield from self._timeouts(state)

    def _may_begin(self, state: State, writer: Writer) -> bool:
        """A stream goes on when it was told of the batch before."""
        before = {
            at for at, each in enumerate(self.writers)
            if each.key == (writer.part, writer.number - 1)
        }  # fmt: skip
        done = {at for at, told in state.told if told in (COMMITTED, ALREADY)}
        return not writer.stream or writer.number == 0 or bool(before & done)

    def _begin(self, state: State, at: int, writer: Writer, rules: Rules) -> State:
        return _moved(state, at, ASKED) if writer.empty else self._join(state, at, writer, rules)

    def _join(self, state: State, at: int, writer: Writer, rules: Rules) -> State:
        verdict = rules.verdict(state.now, writer)
        if verdict in (REPLACED, TAKEN):
            return _moved(_answered(state, at, str(verdict), rules), at, REFUSED)
        if verdict == ALREADY and not rules.is_settled(state):
            return state  # its answer waits for the record
        now = _with_arrival(rules.with_run(state.now, writer), writer)
        if verdict == ALREADY:
            return _moved(state._replace(now=now), at, DRAINED)
        fresh = state.given_out
        now = now._replace(members=(*now.members, (fresh, at, OPEN)))
        named = (*state.named[:at], fresh, *state.named[at + 1 :])
        joins = state.joins + (state.phases[at] == WRITING)
        state = state._replace(now=now, named=named, joins=joins, given_out=fresh + 1)
        return _moved(state, at, JOINING)

    def _joined(self, state: State, at: int, writer: Writer, rules: Rules) -> State:
        """Its answer comes when its record is replicated; when that is lost, it asks again."""
        known = {producer_id for producer_id, _, _ in state.now.members}
        if state.named[at] not in known:
            return self._join(state, at, writer, rules)
        safe = {producer_id for producer_id, _, _ in state.safe.members}
        return _moved(state, at, WRITING) if state.named[at] in safe else state

    def _commit(self, state: State, at: int, writer: Writer, rules: Rules) -> State:
        if not rules.is_settled(state):
            return state  # it is told to ask again
        member = state.named[at]
        members = state.now.members
        is_open = (member, at, OPEN) in members
        is_lost = member >= 0 and not is_open
        if is_lost and rules.looks_at_members_first():
            return _answered(state, at, LOST, rules)
        verdict = rules.verdict(state.now, writer)
        if verdict in (REPLACED, TAKEN):
            return _answered(state, at, str(verdict), rules)
        now = _with_arrival(rules.with_run(state.now, writer), writer)
        if verdict == ALREADY:
            if is_open:
                now = now._replace(members=_ended(members, {member: ABORTED}))
            return _answered(state._replace(now=now), at, ALREADY, rules)
        if member < 0 and not writer.empty:
            return _answered(state, at, NOT_COMMITTED, rules)
        if is_lost and not rules.commits_without_members():
            return _answered(state, at, LOST, rules)
        ends = {
            each: ABORTED
            for each, other, status in members
            if status == OPEN and rules.sweeps(writer, self.writers[other])
        }
        if is_open:
            ends[member] = WON
        self._check_newest(state, writer)
        now = now._replace(members=_ended(members, ends))
        if writer.empty:
            now = now._replace(empty=now.empty | {(writer.key, at)})
        if writer.stream:
            before = state.now.query(writer.owner)
            noted = now.query(writer.owner)
            now = now.with_query(writer.owner, rules.stream_commit(before, noted, writer))
        else:
            now = now._replace(records=now.records | {rules.record_of(writer)})
        return _answered(state._replace(now=now), at, COMMITTED, rules)

    def _folds(self, state: State, rules: Rules) -> Iterator[State]:
        for entry in sorted(state.now.records):
            now = state.now._replace(
                records=state.now.records - {entry},
                folded=state.now.folded | rules.folded(entry),
            )
            yield state._replace(now=now)

    def _timeouts(self, state: State) -> Iterator[State]:
        for each, _, status in state.now.members:
            if status == OPEN:
                members = _ended(state.now.members, {each: ABORTED})
                yield state._replace(
                    now=state.now._replace(members=members), timeouts=state.timeouts + 1
                )

    # --- what must hold ---

    def _check_newest(self, state: State, writer: Writer) -> None:
        runs = [run for owner, run in state.safe.came if owner == writer.owner]
        if writer.run in runs[:-1]:
            raise Broken(f"{writer} commits, though its run was replaced")

    def check(self, state: State) -> None:
        winners: dict[Key, list[int]] = {}
        for _, at, status in state.safe.members:
            if status == WON:
                winners.setdefault(self.writers[at].key, []).append(at)
        for key, at in state.safe.empty:
            winners.setdefault(key, []).append(at)
        for key, won in winners.items():
            if len(won) > 1:
                raise Broken(f"number {key} is written by {len(won)} attempts")
        for at, told in state.told:
            self._check_told(state, at, told, winners)

    def _check_told(self, state: State, at: int, told: str, winners: dict[Key, list[int]]) -> None:
        writer = self.writers[at]
        owners = {self.writers[each].owner for each in winners.get(writer.key, [])}
        alone = sum(each.key == writer.key for each in self.writers) == 1
        if told == COMMITTED and at not in winners.get(writer.key, []):
            raise Broken(f"{writer} was told of a commit that did not come to be")
        if told == ALREADY and owners != {writer.owner}:
            raise Broken(f"{writer} was told that its rows are there, but they are not")
        if told == TAKEN and (not owners or owners == {writer.owner}):
            raise Broken(f"{writer} was refused a number that nobody else has")
        if told == NOT_COMMITTED:
            raise Broken(f"{writer} dropped its rows, and nothing was committed")
        if told == LOST and alone and not state.timeouts and not state.joins:
            raise Broken(f"{writer} lost its transaction to a job of another number")
        if told == REPLACED:
            runs = [run for owner, run in state.safe.came if owner == writer.owner]
            if writer.run not in runs[:-1]:
                raise Broken(f"{writer} was refused, and no newer run is there")

    def explore(self, rules: Rules, *, most: int) -> int:
        """How many states there are; Broken for the first that is wrong."""
        seen = explored(
            self.start(), lambda state: self.successors(state, rules), self.check, most=most
        )
        return len(seen)


def _with_arrival(kept: Kept, writer: Writer) -> Kept:
    entry = writer.owner, writer.run
    return kept if entry in kept.came else kept._replace(came=(*kept.came, entry))


def _moved(state: State, at: int, phase: int) -> State:
    return state._replace(phases=(*state.phases[:at], phase, *state.phases[at + 1 :]))


def _answered(state: State, at: int, answer: str, rules: Rules) -> State:
    if rules.waits_for_replication():
        if (at, answer) in state.told:
            return state
        return state._replace(pending=state.pending | {(at, answer)})
    return state._replace(told=state.told | {(at, answer)})


def _ended(
    members: tuple[tuple[int, int, str], ...], ends: dict[int, str]
) -> tuple[tuple[int, int, str], ...]:
    return tuple((each, at, ends.get(each, status)) for each, at, status in members)
