"""The rules for several named writes of one micro-batch, checked as a model over all interleavings;
and each rule taken out, which the model must notice. Source: R-SPARK2."""

import pytest

from storage_engine.tests.core.transactions.sinks.repeated_writes_model import (
    NOBODY,
    Broken,
    Name,
    Rules,
    State,
    World,
)
from storage_engine.tests.sampling import ALL_FAULTS

FIRST, SECOND, BOTH = frozenset({1}), frozenset({2}), frozenset({1, 2})
APART = (("x", FIRST), ("y", SECOND))
ONE_NAME = (("x", FIRST), ("x", SECOND))
TOGETHER = (("x", BOTH),)
TRIES = 1 if ALL_FAULTS else 0
RENAMED = (("v", FIRST), ("w", SECOND))

RIGHT = {
    "two names": World((APART, APART, APART), tries=1),
    "two names at once": World((APART, APART), tries=TRIES, parallel=True),
    "one name": World((TOGETHER, TOGETHER, TOGETHER), tries=2),
}
WRONG = {
    "one name for two": World((ONE_NAME, ONE_NAME), tries=1, refusable=True),
    "one name for two at once": World((ONE_NAME, ONE_NAME), tries=1, parallel=True, refusable=True),
}
CHANGED = {
    "a name is divided": World((TOGETHER, RENAMED, RENAMED), refusable=True),
    "all names change": World((APART, RENAMED, RENAMED), refusable=True),
    "all names change at once": World((APART, RENAMED), parallel=True, refusable=True),
}


class TakesEachForARepetition(Rules):
    def is_second(self, name: Name, attempt: int, write: int) -> bool:
        return False


class AsksOnlyAtJoin(Rules):
    def checks_at_commit(self) -> bool:
        return False


class ForgetsWhoRepeated(Rules):
    """Two writes of a repetition then both count as one of before."""

    def repeated(self, name: Name, attempt: int, write: int) -> Name:
        return name


class HearsNobodyGiveUp(Rules):
    def given_up(self, name: Name, write: int) -> Name:
        return name


class RefusesWhatWasGivenUp(Rules):
    def is_second(self, name: Name, attempt: int, write: int) -> bool:
        return name.attempt == attempt and name.write != write


class GivesUpForOthers(Rules):
    def given_up(self, name: Name, write: int) -> Name:
        return name._replace(write=NOBODY)


class KnowsNoNames(Rules):
    def knows_names(self) -> bool:
        return False


class TakesAnyNewName(Rules):
    def may_be_new(self, state: State, attempt: int) -> bool:
        return True


@pytest.mark.parametrize("name", RIGHT | CHANGED)
def test_no_row_is_lost_or_doubled_and_nothing_is_refused_for_nothing(name):
    states, succeeded = (RIGHT | CHANGED)[name].explore(Rules())
    assert states > 50
    assert succeeded > 0


@pytest.mark.parametrize("name", WRONG)
def test_two_frames_under_one_name_never_succeed(name):
    states, succeeded = WRONG[name].explore(Rules())
    assert states > 50
    assert succeeded == 0


@pytest.mark.parametrize(
    ("rules", "world"),
    [
        (TakesEachForARepetition, WRONG["one name for two"]),
        (AsksOnlyAtJoin, WRONG["one name for two at once"]),
        (ForgetsWhoRepeated, WRONG["one name for two"]),
        (HearsNobodyGiveUp, RIGHT["one name"]),
        (RefusesWhatWasGivenUp, RIGHT["one name"]),
        (GivesUpForOthers, WRONG["one name for two at once"]),
        (KnowsNoNames, RIGHT["two names"]),
        (TakesAnyNewName, CHANGED["a name is divided"]),
        (TakesAnyNewName, CHANGED["all names change"]),
        (TakesAnyNewName, CHANGED["all names change at once"]),
    ],
)
def test_a_rule_that_is_missing_is_found(rules, world):
    with pytest.raises(Broken):
        world.explore(rules())
