"""Lines that clients cause: how many are written, what becomes of the others, and who uses it."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from storage_engine import broker, net
from storage_engine.net import client_log
from storage_engine.net.client_log import ALL_MAX, EACH_MAX, PERIOD_S, ClientLog

NAME = "storage_engine.tests.client_log"
LINE = "refused client=%s"


class Time:
    """What the logs of this process go by."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.later: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, act: Callable[[], None]) -> None:
        self.later.append((self.now_s + delay_s, act))

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        due = [act for at, act in self.later if at <= self.now_s]
        self.later = [each for each in self.later if each[0] > self.now_s]
        for act in due:
            act()


@pytest.fixture
def passing(monkeypatch, caplog) -> Time:
    made = Time()
    monkeypatch.setattr(client_log._clock, "now_s", lambda: made.now_s)
    monkeypatch.setattr(client_log._clock, "call_later", made.call_later)
    caplog.set_level(logging.DEBUG)
    return made


def test_a_source_gets_so_many_lines_and_the_others_are_counted(passing, caplog) -> None:
    log = ClientLog(NAME)
    for _ in range(67_272):
        log.warning("10.0.0.1", LINE, "a")
    log.warning("10.0.0.2", LINE, "b")
    assert caplog.messages == ["refused client=a"] * EACH_MAX + ["refused client=b"]
    passing.pass_s(PERIOD_S)
    (told,) = caplog.messages[EACH_MAX + 1 :]
    assert f"count={67_272 - EACH_MAX} " in told and LINE in told
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_many_sources_together_get_so_many(passing, caplog) -> None:
    log = ClientLog(NAME)
    for number in range(10 * ALL_MAX):
        log.info(str(number), LINE, number)
    assert len(caplog.messages) == ALL_MAX
    # Nor is anything remembered of the others.
    assert len(log._kinds[LINE].by_source) <= ALL_MAX


def test_other_kinds_are_written_beside_a_flood(passing, caplog) -> None:
    log = ClientLog(NAME)
    for _ in range(1000):
        log.warning("10.0.0.1", LINE, "a")
    log.error("10.0.0.1", "request failed", exc_info=ValueError("why"))
    assert caplog.messages[-1] == "request failed" and "ValueError: why" in caplog.text


def test_a_new_period_begins_anew_and_nothing_is_told_where_nothing_was_left_out(
    passing, caplog
) -> None:
    log = ClientLog(NAME)
    for _ in range(3):
        for _ in range(EACH_MAX):
            log.warning("10.0.0.1", LINE, "a")
        passing.pass_s(PERIOD_S)
    assert caplog.messages == ["refused client=a"] * 3 * EACH_MAX
    assert not passing.later


def test_what_was_left_out_is_told_with_the_next_line_where_nobody_tells_it_in_time(
    passing, caplog, monkeypatch
) -> None:
    monkeypatch.setattr(client_log._clock, "call_later", None)
    log = ClientLog(NAME)
    for _ in range(EACH_MAX + 5):
        log.warning("10.0.0.1", LINE, "a")
    passing.pass_s(PERIOD_S)
    log.warning("10.0.0.1", LINE, "later")
    assert "count=5 " in caplog.messages[-2] and caplog.messages[-1] == "refused client=later"


PLAIN = {
    "administration/user_scram_credentials.py": "each line is a change in ZooKeeper",
    "controller/orders.py": "orders come from the controller",
}
"""Handlers whose lines are not counted, and why."""


def test_what_handles_requests_logs_only_so() -> None:
    rooms = [Path(broker.__file__).parent / name for name in ("handlers", "guards", "access")]
    plain = {
        str(path.relative_to(room))
        for room in rooms
        for path in room.rglob("*.py")
        if "logging.getLogger(" in path.read_text()
    }
    of_rules = {"rule_changes.py", "rule_watch.py", "rule_znodes.py"}
    assert plain - of_rules == set(PLAIN)
    for name in ("connection.py", "server.py", "tls/handshakes.py"):
        assert "logging.getLogger(" not in (Path(net.__file__).parent / name).read_text(), name
