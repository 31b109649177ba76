"""The named writes of one micro-batch as a model: every interleaving of one call of `foreachBatch`
and its repetitions, checked state by state. It knows nothing of the code.

    attempt       a call of `foreachBatch` with the code of then; killed at any moment, begun again
    write         joins -> asks to commit -> is told; or fails, and the function may try it again
    network       a commit is carried out late, often or never, and its answer may be lost; so may
                  the driver's word that a write was given up
    coordinator   by name: whose rows it has, and who may say of it that it has written them

Rows are those of the source: when an attempt succeeds each of them is there, and never twice. A
name that is kept stays what was committed first: code that divides its rows between that name and a
new one can't be told from code whose second write has not begun.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from storage_engine.tests.core.transactions.sinks.exploring import explored

IDLE, DRAINED, JOINED, ASKED, DONE, FAILED = range(6)
NOBODY = -1

Code = tuple[tuple[str, frozenset[int]], ...]
"""The writes of an attempt: a name and the rows of the frame."""


class Name(NamedTuple):
    """The coordinator's knowledge of a committed name."""

    rows: frozenset[int]
    attempt: int
    """The last attempt that has written or repeated it."""
    write: int
    """The write of that attempt; NOBODY after it was given up."""


class Commit(NamedTuple):
    """A request that the network may carry out at any time."""

    attempt: int
    at: int
    write: int
    is_drained: bool


class State(NamedTuple):
    """A state of the world."""

    phases: tuple[int, ...]
    writes: tuple[int, ...]
    """By place in the code the write that is at work there; each has a number of its own."""
    attempt: int = 0
    newest: int = 0
    """The newest attempt that the coordinator has heard of."""
    names: tuple[tuple[str, Name], ...] = ()
    members: frozenset[tuple[str, int]] = frozenset()
    """(name, write) of open transactions."""
    network: frozenset[Commit] = frozenset()
    written: tuple[int, ...] = ()
    """All rows that were committed, as often as they were."""
    given_out: int = 0
    tries: int = 0
    is_unheard: bool = False
    """The word that a write was given up did not arrive, or the commit came after it."""

    def name(self, name: str) -> Name | None:
        return dict(self.names).get(name)

    def with_name(self, name: str, kept: Name) -> "State":
        return self._replace(names=tuple(sorted({**dict(self.names), name: kept}.items())))


class Broken(AssertionError):
    """A promise is broken."""


class Rules:
    """The coordinator's rules; a mutation overrides one of them."""

    def is_second(self, name: Name, attempt: int, write: int) -> bool:
        return name.attempt == attempt and name.write not in (write, NOBODY)

    def repeated(self, name: Name, attempt: int, write: int) -> Name:
        return name._replace(attempt=attempt, write=write)

    def given_up(self, name: Name, write: int) -> Name:
        return name._replace(write=NOBODY) if name.write == write else name

    def may_be_new(self, state: State, attempt: int) -> bool:
        """Whether all names that an earlier attempt has written were repeated."""
        return all(name.attempt == attempt for _, name in state.names)

    def checks_at_join(self) -> bool:
        return True

    def checks_at_commit(self) -> bool:
        return True

    def knows_names(self) -> bool:
        return True


@dataclass(frozen=True)
class World:
    """The code of each attempt, and how much may go wrong."""

    codes: tuple[Code, ...]
    parallel: bool = False
    tries: int = 0
    """How often the function tries a write again that has failed."""
    refusable: bool = False
    """Whether the code may be refused: two writes have one name, or names change."""

    def start(self) -> State:
        count = len(self.codes[0])
        return State(phases=(IDLE,) * count, writes=(NOBODY,) * count)

    def successors(self, state: State, rules: Rules) -> Iterator[State]:
        code = self.codes[state.attempt]
        if FAILED not in state.phases:
            for at, phase in enumerate(state.phases):
                if phase == IDLE and self._may_begin(state, at):
                    yield self._join(state, at, rules)
                if phase in (DRAINED, JOINED):
                    commit = Commit(state.attempt, at, state.writes[at], phase == DRAINED)
                    yield _moved(state, at, ASKED)._replace(network=state.network | {commit})
                    yield from self._fails(state, at, rules)
                if phase == ASKED:
                    yield from self._fails(state, at, rules)
        for commit in state.network:
            yield from self._carries_out(state, commit, rules)
        if state.attempt + 1 < len(self.codes) and state.phases != (DONE,) * len(code):
            count = len(self.codes[state.attempt + 1])
            yield state._replace(
                attempt=state.attempt + 1, phases=(IDLE,) * count, writes=(NOBODY,) * count
            )

    def _may_begin(self, state: State, at: int) -> bool:
        return self.parallel or all(each == DONE for each in state.phases[:at])

    def _join(self, state: State, at: int, rules: Rules) -> State:
        name, write = self.codes[state.attempt][at][0], state.given_out
        state = state._replace(
            newest=max(state.newest, state.attempt),
            given_out=write + 1,
            writes=(*state.writes[:at], write, *state.writes[at + 1 :]),
        )
        known = state.name(name) if rules.knows_names() else None
        if known is None:
            return _moved(state, at, JOINED)._replace(members=state.members | {(name, write)})
        if rules.checks_at_join() and rules.is_second(known, state.attempt, write):
            return self._refused(state, at)
        return _moved(state, at, DRAINED)

    def _refused(self, state: State, at: int) -> State:
        if not self.refusable and not state.is_unheard:
            raise Broken(f"{self.codes[state.attempt][at]} is refused for nothing")
        return _moved(state, at, FAILED)

    def _fails(self, state: State, at: int, rules: Rules) -> Iterator[State]:
        """The write is given up. The coordinator hears of it, or not."""
        name, write = self.codes[state.attempt][at][0], state.writes[at]
        known = state.name(name)
        told = state._replace(members=state.members - {(name, write)})
        if known is not None:
            told = told.with_name(name, rules.given_up(known, write))
        unheard = state.phases[at] == ASKED
        for after in (told, state._replace(is_unheard=state.is_unheard or unheard)):
            yield _moved(after, at, FAILED)
            if after.tries < self.tries:
                yield _moved(after, at, IDLE)._replace(tries=after.tries + 1)

    def _carries_out(self, state: State, commit: Commit, rules: Rules) -> Iterator[State]:
        if commit.attempt < state.newest:
            return
        name, rows = self.codes[commit.attempt][commit.at]
        known = state.name(name) if rules.knows_names() else None
        if known is not None:
            if rules.checks_at_commit() and rules.is_second(known, commit.attempt, commit.write):
                if self._is_waiting(state, commit):
                    yield self._refused(state, commit.at)
                return
            after = state.with_name(name, rules.repeated(known, commit.attempt, commit.write))
            after = after._replace(members=after.members - {(name, commit.write)})
        elif commit.is_drained or (name, commit.write) not in state.members:
            return
        elif not rules.may_be_new(state, commit.attempt):
            return  # it is asked again
        else:
            after = state.with_name(name, Name(rows, commit.attempt, commit.write))
            after = after._replace(
                written=tuple(sorted((*state.written, *rows))),
                members=frozenset(each for each in after.members if each[0] != name),
            )
        if not self._is_waiting(state, commit):
            yield after._replace(is_unheard=True)
            return
        yield after
        yield _moved(after, commit.at, DONE)

    def _is_waiting(self, state: State, commit: Commit) -> bool:
        """Whether the write still waits for an answer."""
        return (
            commit.attempt == state.attempt
            and state.writes[commit.at] == commit.write
            and state.phases[commit.at] == ASKED
        )

    def check(self, state: State) -> None:
        if len(set(state.written)) < len(state.written):
            raise Broken(f"rows are there twice: {state.written}")
        code = self.codes[state.attempt]
        if set(state.phases) == {DONE}:
            missing = frozenset().union(*(rows for _, rows in code)) - set(state.written)
            if missing:
                raise Broken(f"the attempt has succeeded without the rows {set(missing)}")

    def explore(self, rules: Rules, *, most: int = 400_000) -> tuple[int, int]:
        """How many states there are, and in how many an attempt has succeeded; Broken for the
        first that is wrong."""
        seen = explored(
            self.start(), lambda state: self.successors(state, rules), self.check, most=most
        )
        return len(seen), sum(set(state.phases) == {DONE} for state in seen)


def _moved(state: State, at: int, phase: int) -> State:
    return state._replace(phases=(*state.phases[:at], phase, *state.phases[at + 1 :]))
