"""Jobs of many numbers at once, in the world with faults: each number is committed once, whatever
the others do, and also when its ledger has become an interval; and the world notices when a rule is
missing. Source: R-SPARK2."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.transactions import named_claims
from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.core.transactions.named_claims import CommittedNumbers
from storage_engine.core.transactions.transaction_state import (
    NumbersKey,
    named_write,
    part_and_number,
)
from storage_engine.core.transactions.transactions import TransactionCoordinator
from storage_engine.tests.core.transactions.batch_world import SINK, World
from storage_engine.tests.core.transactions.batch_world_parts import Violation
from storage_engine.tests.core.transactions.missing_rules import (
    AbortsWhatIsListed,
    CommitsWhatIsOpen,
    ForgetsTheBatchId,
    with_rules,
)

NUMBERS = range(12)
HAPPENINGS = 1500
SEEDS_TRIED = 60


class JobsAtOnce(World):
    """Each number is written by jobs of its own; one that has ended is often run again."""

    owner = "q"
    telling = 0.0
    """No job replaces another."""
    finished: frozenset[str] = frozenset()

    def queries(self) -> dict[str, int]:
        return {named_write("t", number): number - 1 for number in NUMBERS}

    def goes_on(self, query: str, batch: int) -> bool:
        self.finished |= {query}
        # Nobody writes down that it is done.
        self.logged[query] = batch - 1
        return False

    def goal(self) -> dict[str, int]:
        self.finished = frozenset()
        return {}

    def has_reached(self, goal: dict[str, int]) -> bool:
        return len(self.finished) == len(self.logged)

    def batches_up_to(self, query: str, batch: int) -> range:
        number = batch + 1
        return range(number, number + 1)

    def moved(self) -> int:
        """Numbers that have no ledger any more."""
        record = self.coordinator.batches.numbers(NumbersKey(SINK, "t"))
        return 0 if record is None else sum(1 + each.last - each.first for each in record.intervals)


@pytest.fixture(autouse=True, scope="module")
def few_ledgers():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(named_claims, "LEDGERS_KEPT", 2)
        yield


def live(seed: int, factory=TransactionCoordinator) -> JobsAtOnce:
    world = JobsAtOnce(seed, factory)
    for _ in range(HAPPENINGS):
        world.happen()
    world.settle()
    world.check()
    return world


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_every_number_is_committed_once_and_whole(seed):
    assert live(seed).moved() > 0


class OneSequence(MicroBatchCommits):
    """A number counts as committed when a higher one is."""

    def _is_committed(self, event, ledger):
        named = part_and_number(event.query)
        assert named is not None
        key = NumbersKey(event.sink, named[0])
        owner = self._ledgers.numbers.owner
        return any(owner(key, each) is not None for each in NUMBERS if each >= event.batch)


class MovesIntoNothing(CommittedNumbers):
    def owner(self, key, number):
        part = self._parts.get(key)
        return None if part is None else part.newest.get(number)


class ForgetsMovedNumbers(MicroBatchCommits):
    def __init__(self, log, **limits):
        super().__init__(log, **limits)
        self._ledgers.numbers = MovesIntoNothing(log)


@pytest.mark.parametrize(
    "rules",
    [
        AbortsWhatIsListed,
        CommitsWhatIsOpen,
        ForgetsMovedNumbers,
        ForgetsTheBatchId,
        OneSequence,
    ],
)
def test_a_missing_rule_shows(rules):
    for seed in range(SEEDS_TRIED):
        try:
            live(seed, with_rules(rules))
        except Violation:
            return
    raise AssertionError("nothing was noticed")
