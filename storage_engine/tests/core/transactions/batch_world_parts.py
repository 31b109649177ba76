"""The world of the batch commit around the coordinator: clients, rows, and the partitions that they
are written to, each with the guard of its present leader."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.named_claims import RUNS_KEPT
from storage_engine.core.transactions.transaction_events import TransactionAnswer
from storage_engine.core.transactions.transaction_state import LedgerRecord
from storage_engine.core.transactions.verification_guard import VerificationGuards


class Violation(AssertionError):
    """A promise was broken."""


def demand(truth: bool, what: str) -> None:
    if not truth:
        raise Violation(what)


def check_runs(before: tuple[UUID, ...], record: LedgerRecord) -> None:
    """The next record of a ledger with those runs forgets none of them."""
    one_more = (*before, *record.runs[-1:])[-RUNS_KEPT:]
    demand(record.runs in (before, one_more), f"of the runs {before} only {record.runs} are left")


@dataclass(frozen=True, slots=True)
class Row:
    query: str
    batch: int
    offset: int
    """In the source."""


@dataclass(frozen=True, slots=True)
class Produce:
    producer_id: int
    partition: TopicPartition
    sequence: int
    row: Row


@dataclass(slots=True)
class OutputPartition:
    """A partition, with the guard of its present leader."""

    entries: list[tuple[int, Row | bool]] = field(default_factory=list)
    """(producer id, a row or how the marker ends)."""
    guards: VerificationGuards = field(default_factory=VerificationGuards)
    sequences: dict[int, int] = field(default_factory=dict)
    coordinator_epochs: dict[int, int] = field(default_factory=dict)

    def append(self, produce: Produce) -> ErrorCode:
        producer_id = produce.producer_id
        known = self.sequences.get(producer_id, -1)
        if produce.sequence <= known:
            return ErrorCode.NONE
        if not self.guards.is_open(producer_id, 0):
            return ErrorCode.INVALID_TXN_STATE
        demand(produce.sequence == known + 1, "a client sends one row after another")
        demand(
            not any(isinstance(what, bool) for each, what in self.entries if each == producer_id),
            f"producer {producer_id} writes after its marker: the last stable offset is stuck",
        )
        self.sequences[producer_id] = produce.sequence
        self.entries.append((producer_id, produce.row))
        return ErrorCode.NONE

    def mark(self, producer_id: int, commits: bool, coordinator_epoch: int) -> bool:
        """Whether it was taken: a repeat is harmless, an old coordinator's is refused."""
        if coordinator_epoch < self.coordinator_epochs.get(producer_id, 0):
            return False
        self.coordinator_epochs[producer_id] = coordinator_epoch
        self.guards.note_marker(producer_id)
        earlier = {
            what for each, what in self.entries if each == producer_id and isinstance(what, bool)
        }
        demand(earlier <= {commits}, f"producer {producer_id} is committed and aborted")
        self.entries.append((producer_id, commits))
        return True


Talk = Generator[Any, Any, Any]
"""A client's work: it yields requests, and conditions to wait for, and is sent the answers."""


class Client:
    """Runs a talk: the identical request again and again, until its answer comes."""

    def __init__(self, world: Any, talk: Talk, on_end: Callable[[Any], None]) -> None:
        self.world, self.talk, self.on_end = world, talk, on_end
        self.serial = 0
        self.done = False
        self.asked: Any = next(talk)

    def poke(self) -> None:
        """Ask, once more or for the first time; or look whether what it waits for is there."""
        if callable(self.asked):
            if self.asked():
                self.hear(self.serial, None)
            return
        serial, asked = self.serial, self.asked
        self.world.mail(lambda: self.world.serve(asked, lambda answer: self.hear(serial, answer)))

    def hear(self, serial: int, answer: Any) -> None:
        if self.done or serial != self.serial:
            return
        if (
            isinstance(answer, TransactionAnswer)
            and answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
        ):
            return
        self.serial += 1
        try:
            self.asked = self.talk.send(answer)
        except StopIteration as end:
            self.done = True
            self.on_end(end.value)
