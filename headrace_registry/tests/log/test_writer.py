"""A term as the writer, with a producer that does what a test wants."""

from typing import Any

import pytest

from headrace_registry.election.identity import Identity
from headrace_registry.log import writer
from headrace_registry.log.follower import Follower
from headrace_registry.log.writer import FencedError, SchemasWriter
from headrace_registry.writes import Writes
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.producer_errors import (
    ProducerFencedError,
    TransactionFailedError,
)
from storage_engine.core.errors import DeadlineExceededError, RecordTooLargeError
from storage_engine.core.schemas.registry.changes import PlannedChange
from storage_engine.core.schemas.registry.registry_error import RegistryError

RECORD = (b"key", b"value")


class Sent:
    def __init__(self, offset: int) -> None:
        self.offset = offset

    def result(self) -> "Sent":
        return self


class FakeProducer:
    """Its log has an offset for each record; a commit may fail."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, Any]] = []
        self.fails: list[Exception | None] = []
        self.aborted = 0
        self.abort_fails: Exception | None = None

    def begin_transaction(self) -> None: ...

    def send(self, _topic: str, value: Any, *, key: Any, partition: int) -> Sent:
        self.log.append((key, value))
        return Sent(len(self.log) - 1)

    def commit_transaction(self) -> None:
        failure = self.fails.pop(0) if self.fails else None
        if failure is not None:
            raise failure

    def abort_transaction(self) -> None:
        self.aborted += 1
        if self.abort_fails is not None:
            raise self.abort_fails

    def close(self, timeout_ms: int) -> None: ...


def nowhere() -> Cluster:
    return Cluster("127.0.0.1:1")


@pytest.fixture(autouse=True)
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(writer, "DELIVERY_TIMEOUT_MS", 50)
    monkeypatch.setattr(writer, "TRANSACTION_TIMEOUT_MS", 0)


@pytest.fixture
def producer() -> FakeProducer:
    return FakeProducer()


@pytest.fixture
def follower() -> Follower:
    return Follower(nowhere, "_schemas")


def read_up_to(follower: Follower, position: int) -> None:
    with follower._changed:
        follower._position = position
        follower._changed.notify_all()


def failed_by(cause: Exception) -> TransactionFailedError:
    error = TransactionFailedError("a record was not sent")
    error.__cause__ = cause
    return error


def test_nothing_is_planned_before_what_was_written_is_read(producer, follower) -> None:
    terms = []

    def take_over() -> SchemasWriter:
        terms.append(SchemasWriter(producer, "_schemas", follower))
        return terms[-1]

    writes = Writes(follower, None, take_over, lambda: None)
    writes.elected(Identity(host="h", port=1), True)
    planned = []

    def plan(state: object) -> PlannedChange:
        planned.append(state)
        return PlannedChange(1, [RECORD])

    with pytest.raises(RegistryError) as caught:
        writes.change_alone(plan)
    assert caught.value.code == 50002
    with pytest.raises(RegistryError):
        writes.change_alone(plan)
    assert (len(planned), len(producer.log), len(terms)) == (1, 1, 1)
    read_up_to(follower, 2)
    assert writes.change_alone(plan) == 1
    assert (len(planned), len(producer.log)) == (2, 2)


@pytest.mark.parametrize(
    "failure",
    [ProducerFencedError("fenced"), failed_by(ProducerFencedError("fenced"))],
    ids=["told by the commit", "told by a record"],
)
def test_a_writer_that_was_fenced_writes_no_more(producer, follower, failure) -> None:
    term = SchemasWriter(producer, "_schemas", follower)
    producer.fails = [failure]
    with pytest.raises(FencedError):
        term.write([RECORD])
    assert (term.is_usable, producer.aborted) == (False, 0)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (failed_by(RecordTooLargeError("large")), 42209),
        (failed_by(DeadlineExceededError("late")), 50002),
        (DeadlineExceededError("late"), 50002),
        (TransactionFailedError("so"), 50001),
    ],
)
def test_a_write_that_failed_is_aborted_and_told(producer, follower, failure, code) -> None:
    term = SchemasWriter(producer, "_schemas", follower)
    producer.fails = [failure]
    with pytest.raises(RegistryError) as caught:
        term.write([RECORD])
    assert (caught.value.code, producer.aborted, term.is_usable) == (code, 1, True)


def test_a_term_ends_where_the_outcome_is_open(producer, follower) -> None:
    term = SchemasWriter(producer, "_schemas", follower)
    producer.fails, producer.abort_fails = (
        [DeadlineExceededError("late")],
        TransactionFailedError(""),
    )
    with pytest.raises(RegistryError):
        term.write([RECORD])
    assert not term.is_usable


def test_who_was_fenced_waits_for_the_groups_word(producer, follower, monkeypatch) -> None:
    monkeypatch.setattr("headrace_registry.writes.WRITE_TIMEOUT_MS", 100)
    asked = []
    producer.fails = [ProducerFencedError("fenced")]
    writes = Writes(
        follower,
        None,
        lambda: SchemasWriter(producer, "_schemas", follower),
        lambda: asked.append(1),
    )
    writes.elected(Identity(host="h", port=1), True)
    raw = _Raw()
    with pytest.raises(RegistryError) as caught:
        writes.do(raw, lambda: writes.change_alone(lambda _: PlannedChange(1, [RECORD])))
    assert (caught.value.code, asked, writes._role.is_own) == (50004, [1], False)
    read_up_to(follower, 10)
    writes.elected(Identity(host="h", port=1), True)
    assert writes.do(raw, lambda: writes.change_alone(lambda _: PlannedChange(7, [RECORD]))) == 7


class _Raw:
    is_forwarded = False
