"""Committing to a group how far a query has read, in the background, without delaying the query."""

import logging
import threading
import time

import pytest

from connector.errors import OptionError
from connector.options.connection_options import ConnectionOptions
from connector.source import group_commits
from connector.source.group_commits import GroupOffsetCommits
from storage_engine.client.groups import committed_offsets
from storage_engine.core.errors import (
    AuthenticationError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition

T0 = TopicPartition("t", 0)
CONNECTION = ConnectionOptions(
    bootstrap_servers="h:1", client_id="c", request_timeout_ms=1000, metadata_max_age_ms=1000
)
DEADLINE_S = 30


class Coordinator:
    """Stands for OffsetCommitter; holds each commit until it is let go."""

    def __init__(self, monkeypatch):
        self.stored: list[tuple[str, dict[TopicPartition, int]]] = []
        self.error: HeadraceError | None = None
        self.holds = True
        self.arrived = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        coordinator = self

        class Offsets:
            def __init__(self, cluster, group, *, deadline_ms):
                self.group = group

            def commit(self, offsets):
                coordinator.arrived.release()
                if coordinator.holds:
                    assert coordinator.let_go.acquire(timeout=DEADLINE_S)
                if coordinator.error is not None:
                    raise coordinator.error
                coordinator.stored.append((self.group, dict(offsets)))

        monkeypatch.setattr(committed_offsets, "OffsetCommitter", Offsets)


@pytest.fixture
def coordinator(monkeypatch):
    monkeypatch.setattr(group_commits, "FLUSH_MS", DEADLINE_S * 1000)
    return Coordinator(monkeypatch)


def test_what_is_passed_while_one_commit_is_under_way_is_skipped(coordinator):
    commits = GroupOffsetCommits(CONNECTION)
    commits.note("g", {T0: 1})
    assert coordinator.arrived.acquire(timeout=DEADLINE_S)
    for offset in (2, 3, 4):
        commits.note("g", {T0: offset})
    coordinator.let_go.release(2)
    commits.close()
    assert coordinator.stored == [("g", {T0: 1}), ("g", {T0: 4})]


def test_the_same_positions_are_told_once(coordinator):
    commits = GroupOffsetCommits(CONNECTION)
    coordinator.let_go.release(9)
    for _ in range(5):
        commits.note("g", {T0: 1})
    commits.close()
    assert coordinator.stored == [("g", {T0: 1})]


def test_a_refusal_is_logged_once_and_later_positions_are_tried(coordinator, caplog):
    commits = GroupOffsetCommits(CONNECTION)
    coordinator.error = KafkaError("no", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    coordinator.let_go.release(9)
    with caplog.at_level(logging.WARNING):
        for offset in (1, 2):
            commits.note("g", {T0: offset})
            assert coordinator.arrived.acquire(timeout=DEADLINE_S)
        coordinator.let_go = threading.Semaphore(9)
        coordinator.error = None
        commits.note("g", {T0: 3})
        commits.close()
    assert coordinator.stored[-1] == ("g", {T0: 3})
    assert len(caplog.messages) == 1
    assert "group 'g' is not told how far it has read: no" in caplog.messages[0]


def test_positions_of_an_idle_query_are_told_when_the_coordinator_is_back(coordinator):
    coordinator.error = DeadlineExceededError("no coordinator")
    commits = GroupOffsetCommits(CONNECTION)
    commits.note("g", {T0: 1})
    for _ in range(2):
        assert coordinator.arrived.acquire(timeout=DEADLINE_S)
        coordinator.let_go.release()
    assert coordinator.arrived.acquire(timeout=DEADLINE_S)
    coordinator.error = None
    coordinator.let_go.release()
    commits.close()
    assert coordinator.stored == [("g", {T0: 1})]


def test_the_end_of_a_query_ends_the_tries(coordinator):
    coordinator.error = DeadlineExceededError("no coordinator")
    commits = GroupOffsetCommits(CONNECTION)
    commits.note("g", {T0: 1})
    assert coordinator.arrived.acquire(timeout=DEADLINE_S)
    closing = threading.Thread(target=commits.close)
    closing.start()
    # It may be tried a few times before the other thread gets to run.
    coordinator.holds = False
    coordinator.let_go.release()
    closing.join(DEADLINE_S)
    assert not closing.is_alive()
    assert coordinator.stored == []


class ChangingConnection:
    """Stands for the settings of a connection, whose file has its faults before it is right."""

    bootstrap_servers, client_id, request_timeout_ms = "h:1", "c", 1000

    def __init__(self, *faults):
        self.faults = list(faults)
        self.read = 0

    def client_security(self):
        self.read += 1
        if self.faults:
            raise self.faults.pop()


def test_a_file_of_settings_that_was_not_right_for_a_moment_is_read_again(
    coordinator, monkeypatch, caplog
):
    monkeypatch.setattr(group_commits, "RETRY_MS", 1)
    coordinator.holds = False
    commits = GroupOffsetCommits(ChangingConnection(OptionError("BAD_OPTION", "no such file")))
    commits.note("g", {T0: 1})
    assert coordinator.arrived.acquire(timeout=DEADLINE_S)
    commits.close()
    assert coordinator.stored == [("g", {T0: 1})]
    assert [text for text in caplog.messages if "no such file" in text] == caplog.messages


def test_after_a_refused_log_in_the_secrets_are_read_again(coordinator, monkeypatch):
    monkeypatch.setattr(group_commits, "RETRY_MS", 1)
    connection = ChangingConnection()
    coordinator.error = AuthenticationError("a password that was changed")
    commits = GroupOffsetCommits(connection)
    commits.note("g", {T0: 1})
    assert coordinator.arrived.acquire(timeout=DEADLINE_S)
    coordinator.let_go.release()
    assert coordinator.arrived.acquire(timeout=DEADLINE_S)
    coordinator.error = None
    coordinator.let_go.release()
    commits.close()
    assert coordinator.stored == [("g", {T0: 1})]
    assert connection.read == 2


def test_the_end_of_a_query_does_not_wait_long_for_a_coordinator_that_hangs(
    coordinator, monkeypatch
):
    monkeypatch.setattr(group_commits, "FLUSH_MS", 1)
    commits = GroupOffsetCommits(CONNECTION)
    commits.note("g", {T0: 1})
    assert coordinator.arrived.acquire(timeout=DEADLINE_S)
    began_s = time.monotonic()
    commits.close()
    assert time.monotonic() - began_s < DEADLINE_S / 3
    assert coordinator.stored == []
    coordinator.let_go.release(9)


def test_a_query_that_committed_nothing_ends_at_once(coordinator):
    """It does not wait for `FLUSH_MS`, which is DEADLINE_S here, and asks no broker."""
    began_s = time.monotonic()
    GroupOffsetCommits(CONNECTION).close()
    assert time.monotonic() - began_s < DEADLINE_S / 3
    assert not coordinator.arrived.acquire(blocking=False)
