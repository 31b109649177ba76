"""How much of the long tests a run does. HEADRACE_FAULTS=full: all of it."""

import itertools
import os
import random
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import pytest

_Case = TypeVar("_Case")
_Way = TypeVar("_Way")

ALL_FAULTS = os.environ.get("HEADRACE_FAULTS") == "full"
"""Long fault tests run in full; else a sample of them, always the same."""

if ALL_FAULTS:
    # The workers of this process, and the programs that tests start, inherit it.
    os.environ.setdefault("HEADRACE_SEED", str(random.SystemRandom().randrange(1 << 24)))
SEED = int(os.environ.get("HEADRACE_SEED", "1"))
"""The seed of samples and of all that is random in a test. A run of all tests has another one each
time, which stands in the head of its report (`conftest.py`)."""


in_full = pytest.mark.full
"""The tier of a test that only `make test-all` runs: others hold the same promise."""
in_check = pytest.mark.check
"""The tier of a test with processes that `make check` runs, too."""


def examples(count: int) -> int:
    """Of hypothesis: so many in full, a tenth by default."""
    return count if ALL_FAULTS else max(10, count // 10)


def seeds(count: int) -> range:
    """Of cases at random that take long enough to be felt: so many in full, a third by default."""
    return range(count if ALL_FAULTS else max(2, count // 3))


def every_second(cases: Sequence[_Case]) -> Sequence[_Case]:
    """Of moments and steps that follow one another: all in full, every second one by default."""
    return cases if ALL_FAULTS else cases[::2]


def by_turns(names: Iterable[_Case], ways: Sequence[_Way]) -> list[tuple[_Case, _Way]]:
    """Each case in each way in full; by default the first in the first way, the next in the next
    one, and so on."""
    if ALL_FAULTS:
        return list(itertools.product(names, ways))
    return list(zip(names, itertools.cycle(ways), strict=False))


def a_third(names: Collection[str]) -> list[str]:
    """Of many cases that are alike: all in full, every third by default."""
    return list(names) if ALL_FAULTS else list(names)[::3]
