"""What may go wrong with a query on the keyed sink, when, and which of these make sense together.
This module only describes them; `test_spark_keyed_sink` makes them happen.

    before write   the micro-batch has begun, nothing is with the database
    within         some rows are with the database, in an open transaction
    all rows       all are, before the commit
    after commit   the database has committed, Spark has not written its commit log

Source: R-SPARK4.
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
    REPEATED = "task fails and is retried"
    SPECULATION = "speculation beside a slow task"
    TASK = "task fails"
    WORKER = "Python worker killed"
    DATABASE = "database fails"
    SERVER = "database server killed"
    DATABASE_NETWORK = "network to the database cut"
    SOURCE_LEADER = "broker that leads the source killed"
    NETWORK = "network to the brokers cut"


DATABASES = ("sqlite", "postgresql", "mariadb")
KILLS_THE_DRIVER = (Fault.DRIVER, Fault.GROWTH, Fault.PARALLELISM)
ENDS_WELL = (Fault.RETRIED, Fault.REPEATED, Fault.SPECULATION)
"""The query hears nothing of it."""

OWN_DRIVER = (*KILLS_THE_DRIVER, Fault.ZOMBIE, *ENDS_WELL)
"""Each case with a JVM of its own; the others share the session of all tests."""

STRIKES_BESIDE = (Fault.SERVER, Fault.DATABASE_NETWORK, Fault.SOURCE_LEADER, Fault.NETWORK)
"""The query, which stands still at the stage, goes on and finds it."""

OF_SERVERS = (Fault.SERVER, Fault.DATABASE_NETWORK)
DISTURBS_BROKERS = (Fault.SOURCE_LEADER, Fault.NETWORK)
NEEDS_MORE = (Fault.SPECULATION, *DISTURBS_BROKERS)
"""A Spark of two hosts, or three brokers."""


@dataclass(frozen=True)
class Case:
    database: str
    fault: Fault
    stage: Stage

    def __str__(self) -> str:
        return f"{self.database}, {self.fault.value}, {self.stage.value}".replace(" ", "-")


def why_not(case: Case) -> str | None:
    """Why a combination makes no sense; None for one that does."""
    if case.fault in OF_SERVERS and case.database == "sqlite":
        return "it is a part of the driver"
    if case.fault in (*KILLS_THE_DRIVER, Fault.ZOMBIE, *STRIKES_BESIDE):
        return None
    return None if case.stage is Stage.WITHIN else "tasks are at work within the transaction only"


def all_cases() -> list[Case]:
    made = itertools.starmap(Case, itertools.product(DATABASES, Fault, Stage))
    return [case for case in made if why_not(case) is None]


def sample(seed: int) -> list[Case]:
    """One on PostgreSQL, which can fail in more ways. None that NEEDS_MORE, and none with a driver
    of its own, which takes a Spark: a replay is the same whoever runs it."""
    left = [case for case in all_cases() if case.fault not in (*NEEDS_MORE, *OWN_DRIVER)]
    return [random.Random(seed).choice([case for case in left if case.database == "postgresql"])]
