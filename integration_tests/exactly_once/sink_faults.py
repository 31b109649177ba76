"""What may go wrong with a query on the exactly-once sink, when, and which of these make sense
together. This module only lists the cases; `fault_runner` carries them out.

    before write    a task has begun, and has written nothing
    some rows       some of a task's rows are with the brokers
    all rows        all are acknowledged, and Spark has not heard of it
    before commit   all tasks are accepted, CommitBatch is not sent
    recorded        the commit record is replicated, and a partition has no marker yet
    marked          all markers are written, Spark's `commit` has not returned
    returned        it has, and Spark has not written its commit log

Source: R-SPARK2.
"""

import enum
import itertools
from dataclasses import dataclass

from integration_tests.exactly_once.sink_queries import QUERIES


class Stage(enum.Enum):
    BEFORE_WRITE = "before write"
    SOME_ROWS = "some rows"
    ALL_ROWS = "all rows"
    BEFORE_COMMIT = "before commit"
    RECORDED = "recorded"
    MARKED = "marked"
    RETURNED = "returned"


class Fault(enum.Enum):
    DRIVER = "driver killed"
    WORKER = "Python worker killed"
    OUTPUT_LEADER = "broker that leads the output killed"
    COORDINATOR = "transaction coordinator killed"
    CONTROLLER = "controller killed"
    TASK_FAILS = "task fails"
    SPECULATION = "speculation beside a slow task"
    ZOMBIE = "zombie writes after its successor"
    NETWORK = "network cut"
    GROWTH = "source grows and driver killed"
    PARALLELISM = "driver killed and other parallelism"


IN_A_TASK = (Stage.BEFORE_WRITE, Stage.SOME_ROWS, Stage.ALL_ROWS)
BROKERS = (Fault.OUTPUT_LEADER, Fault.COORDINATOR, Fault.CONTROLLER)
KILLS_THE_DRIVER = (Fault.DRIVER, Fault.GROWTH, Fault.PARALLELISM)


@dataclass(frozen=True)
class Case:
    fault: Fault
    stage: Stage
    query: str
    is_typed: bool = False
    """Between typed topics."""
    is_avro: bool = False
    """Between topics of Avro."""

    def __str__(self) -> str:
        kind = ", typed" * self.is_typed + ", Avro" * self.is_avro
        return f"{self.fault.value}, {self.stage.value}, {self.query}{kind}".replace(" ", "-")

    @property
    def disturbs_brokers(self) -> bool:
        """Whether brokers are disturbed, so that rows may become readable late."""
        return (
            self.fault in BROKERS
            or self.fault is Fault.NETWORK
            or self.stage in (Stage.RECORDED, Stage.RETURNED)
        )


def why_not(case: Case) -> str | None:
    """Why a combination makes no sense. None where it does."""
    fault, stage = case.fault, case.stage
    if fault in (Fault.TASK_FAILS, Fault.SPECULATION) and stage not in IN_A_TASK:
        return "no task is at work any more"
    if fault is Fault.ZOMBIE and stage in (Stage.BEFORE_WRITE, Stage.SOME_ROWS):
        return "its successor has not written yet"
    if fault is Fault.NETWORK and stage in (Stage.RECORDED, Stage.MARKED, Stage.RETURNED):
        return "Spark asks the brokers nothing more"
    if fault in (Fault.WORKER, Fault.ZOMBIE) and stage is Stage.RETURNED:
        return "what returned is nobody's process any more, and its markers are long written"
    return None


KILLS = (Fault.DRIVER, Fault.WORKER, Fault.TASK_FAILS, Fault.OUTPUT_LEADER, Fault.COORDINATOR)


def typed_cases() -> list[Case]:
    """What is killed, and when, between typed topics, for a query with state and one without."""
    made = itertools.product(KILLS, Stage, ("random", "windows"))
    cases = [Case(fault, stage, query, is_typed=True) for fault, stage, query in made]
    return [case for case in cases if why_not(case) is None]


def avro_cases() -> list[Case]:
    """The same in the midst of a write, and before the commit, between topics of Avro."""
    made = itertools.product(KILLS, (Stage.SOME_ROWS, Stage.BEFORE_COMMIT), ("random",))
    cases = [Case(fault, stage, query, is_avro=True) for fault, stage, query in made]
    return [case for case in cases if why_not(case) is None]


def all_cases() -> list[Case]:
    made = itertools.starmap(Case, itertools.product(Fault, Stage, QUERIES))
    return [case for case in made if why_not(case) is None]
