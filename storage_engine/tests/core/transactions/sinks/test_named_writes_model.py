"""The rules of named batch writes, checked as a model over all interleavings; and each rule taken
out, which the model must notice. Source: R-SPARK2."""

import pytest

from storage_engine.tests.core.transactions.sinks.named_writes_model import (
    Broken,
    Kept,
    Query,
    Rules,
    State,
    World,
    Writer,
)
from storage_engine.tests.sampling import ALL_FAULTS

MOST_STATES = 4_000_000 if ALL_FAULTS else 200_000

FIVE, SIX, THREE = Writer(5), Writer(6), Writer(3)
OF_Q = Writer(5, owner="q", run="1")
OF_Q_RESTARTED = Writer(5, owner="q", run="2")


def of_stream(number: int, run: str, *, empty: bool = False) -> Writer:
    return Writer(number, part="", owner="q", run=run, stream=True, empty=empty)


WORLDS = {
    "two numbers at once": World((FIVE, SIX)),
    "a lower number": World((SIX, THREE)),
    "one number twice": World((FIVE, Writer(5)), timeouts=1),
    "one number, two topics": World((FIVE, Writer(5, part="u"))),
    "one number of two queries": World((OF_Q, Writer(5, owner="r", run="3"))),
    "one number of a query and of a job": World((OF_Q, FIVE)),
    "a driver and its successor": World((OF_Q, OF_Q_RESTARTED)),
    "a zombie goes on": World((OF_Q, Writer(6, owner="q", run="2"))),
    "a number without rows": World((Writer(5, empty=True), Writer(5, empty=True), SIX)),
    "a stream that begins without rows": World(
        (of_stream(0, "1", empty=True), of_stream(1, "2"), of_stream(1, "1"))
    ),
    "a stream and its successor": World((of_stream(0, "1"), of_stream(0, "2"), of_stream(1, "1"))),
}
if ALL_FAULTS:
    WORLDS |= {
        "attempts without a driver": World((FIVE, SIX), timeouts=1, second_joins=1),
        "three numbers": World((FIVE, SIX, THREE)),
        "a number three times": World((FIVE, Writer(5), Writer(5))),
        "three runs": World((OF_Q, OF_Q_RESTARTED, Writer(6, owner="q", run="3"))),
        "two coordinators lost": World((FIVE, Writer(5)), failovers=2, timeouts=2, second_joins=2),
    }


class CountsAsOneSequence(Rules):
    def committed_by(self, kept: Kept, writer: Writer) -> str | None:
        for (part, number), owner in kept.records | kept.folded:
            if part == writer.part and number >= writer.number:
                return owner
        return None


class ForgetsThePart(Rules):
    def committed_by(self, kept: Kept, writer: Writer) -> str | None:
        for (_, number), owner in kept.records | kept.folded:
            if number == writer.number:
                return owner
        return None


class SweepsLowerNumbers(Rules):
    def sweeps(self, writer: Writer, other: Writer) -> bool:
        return other.part == writer.part and other.number <= writer.number


class SweepsNobody(Rules):
    """Alone it leaves transactions open, but commits no number twice: rule 1 is there."""

    def sweeps(self, writer: Writer, other: Writer) -> bool:
        return False


class ForgetsCommittedNumbers(SweepsNobody):
    def verdict(self, kept: Kept, writer: Writer) -> str | None:
        return None


class TakesAnyOwner(Rules):
    def is_taken(self, owner: str, writer: Writer) -> bool:
        return False


class FoldsWithoutTheOwner(Rules):
    def folded(self, entry):
        return frozenset({(entry[0], "")})


class FoldsIntoNothing(SweepsNobody):
    def folded(self, entry):
        return frozenset()


class AnswersAtOnce(Rules):
    def waits_for_replication(self) -> bool:
        return False


class LooksAtMembersFirst(Rules):
    def looks_at_members_first(self) -> bool:
        return True


class CommitsWhatIsOpen(Rules):
    def commits_without_members(self) -> bool:
        return True


class KnowsNoRuns(Rules):
    def is_replaced(self, kept: Kept, writer: Writer) -> bool:
        return False


class RefusesTheNewerRun(Rules):
    def is_replaced(self, kept: Kept, writer: Writer) -> bool:
        runs = kept.query(writer.owner).runs
        return bool(runs) and writer.run != runs[0]


class DoesNotRemember(Rules):
    """Knows the newest run only: an older one that comes again is taken for newer."""

    def with_run(self, kept: Kept, writer: Writer) -> Kept:
        if not writer.owner:
            return kept
        query = kept.query(writer.owner)
        return kept.with_query(writer.owner, query._replace(runs=(writer.run,)))


class WritesOverTheRun(Rules):
    """The first commit of a stream makes its record of what was there before its run was noted."""

    def stream_commit(self, before: Query, noted: Query, writer: Writer) -> Query:
        return Query(writer.number, before.runs)


class ForgetsTheLastNumber(Rules):
    def stream_commit(self, before: Query, noted: Query, writer: Writer) -> Query:
        return noted


class RefusesBeforeReplication(Rules):
    """A newer run that is lost with its coordinator has ended the older one."""

    def is_settled(self, state: State) -> bool:
        return True

    def waits_for_replication(self) -> bool:
        return False


@pytest.mark.parametrize("name", WORLDS)
def test_every_interleaving_keeps_the_promises(name):
    assert WORLDS[name].explore(Rules(), most=MOST_STATES) > 100


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (CountsAsOneSequence, "two numbers at once"),
        (CountsAsOneSequence, "a lower number"),
        (ForgetsThePart, "one number, two topics"),
        (SweepsLowerNumbers, "two numbers at once"),
        (ForgetsCommittedNumbers, "one number twice"),
        (TakesAnyOwner, "one number of two queries"),
        (FoldsWithoutTheOwner, "one number of a query and of a job"),
        (FoldsWithoutTheOwner, "a driver and its successor"),
        (FoldsIntoNothing, "one number twice"),
        (AnswersAtOnce, "one number twice"),
        (LooksAtMembersFirst, "two numbers at once"),
        (DoesNotRemember, "a driver and its successor"),
        (CommitsWhatIsOpen, "one number twice"),
        (KnowsNoRuns, "a zombie goes on"),
        (RefusesTheNewerRun, "a driver and its successor"),
        (RefusesBeforeReplication, "a driver and its successor"),
        (WritesOverTheRun, "a stream that begins without rows"),
        (ForgetsTheLastNumber, "a stream and its successor"),
    ],
)
def test_a_rule_that_is_missing_is_found(rules, name):
    with pytest.raises(Broken):
        WORLDS[name].explore(rules(), most=MOST_STATES)
