"""What may go wrong with a query on the keyed sink, when, and which of these make sense together.
Its one rule: pure; `test_spark_keyed_sink` does it.

    before write   the micro-batch has begun, nothing is with the database
    within         some rows are with the database, in an open transaction
    all rows       all are, before the commit
    after commit   the database has committed, Spark has not written its commit log

Source: R-SPARK4, issue "Exactly once".
"""

import enum
import itertools
import random
from dataclasses import dataclass


class Stage(enum.Enum):
    BEFORE_WRITE = "before-write"
    WITHIN = "within"
    ALL_ROWS = "all-rows"
    AFTER_COMMIT = "after-commit"


class Fault(enum.Enum):
    DRIVER = "driver killed"
    GROWTH = "source grows and driver killed"
    PARALLELISM = "driver killed and other parallelism"
    ZOMBIE = "driver goes on after its successor"
    RETRIED = "Python worker killed and task retried"
    TASK = "task fails"
    WORKER = "Python worker killed"
    DATABASE = "database fails"


DATABASES = ("sqlite", "postgresql")
KILLS_THE_DRIVER = (Fault.DRIVER, Fault.GROWTH, Fault.PARALLELISM)
OWN_DRIVER = (*KILLS_THE_DRIVER, Fault.ZOMBIE, Fault.RETRIED)
"""Each case with a JVM of its own; the others share the session of all tests."""


@dataclass(frozen=True)
class Case:
    database: str
    fault: Fault
    stage: Stage

    def __str__(self) -> str:
        return f"{self.database}, {self.fault.value}, {self.stage.value}".replace(" ", "-")


def why_not(case: Case) -> str | None:
    """Why a combination makes no sense; None for one that does."""
    if case.fault in KILLS_THE_DRIVER:
        return None
    if case.fault is Fault.ZOMBIE:
        locks = "within its transaction it holds the lock, and its successor waits"
        return None if case.stage is Stage.BEFORE_WRITE else locks
    return None if case.stage is Stage.WITHIN else "tasks are at work within the transaction only"


def all_cases() -> list[Case]:
    made = itertools.starmap(Case, itertools.product(DATABASES, Fault, Stage))
    return [case for case in made if why_not(case) is None]


def sample(seed: int) -> list[Case]:
    """One with a driver of its own and one without, on another database."""
    generator = random.Random(seed)
    slow = generator.choice([case for case in all_cases() if case.fault in OWN_DRIVER])
    quick = [
        case
        for case in all_cases()
        if case.fault not in OWN_DRIVER and case.database != slow.database
    ]
    return [slow, generator.choice(quick)]
