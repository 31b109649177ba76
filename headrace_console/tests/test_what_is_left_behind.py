"""Threads, connections and counts of the console do not outlive what they are for, and one error
does not last."""

import threading
import time
from typing import Any

import pytest

from headrace_console.cluster import broker_lines
from headrace_console.cluster.broker_lines import BrokerLines
from headrace_console.cluster.upstream import Upstream
from headrace_console.console_settings import ConsoleSettings
from headrace_console.http import application
from headrace_console.http.server_state import ServerState
from headrace_console.http.streams import MOST_STREAMS_EACH
from headrace_console.tests.console_support import Browser, running_console, within
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import HeadraceError

NOWHERE = "127.0.0.1:1"


def test_an_answer_that_breaks_the_console_silences_its_broker_only_once(monkeypatch) -> None:
    answers = [ValueError("no such field"), ["well"]]

    def exchange(*_: Any) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(broker_lines._Line, "exchange", exchange)
    lines = BrokerLines(None)
    try:
        asked: Any = {1: []}, {1: ("127.0.0.1", 1)}
        first = lines.ask(*asked, timeout_ms=2_000)[1]
        assert isinstance(first, HeadraceError) and "could not be read" in str(first)
        assert lines.ask(*asked, timeout_ms=2_000)[1] == ["well"]
    finally:
        lines.close()


def test_what_was_in_use_when_a_log_in_ended_is_closed_when_it_is_given_back(monkeypatch) -> None:
    closed = []
    monkeypatch.setattr(Cluster, "close", lambda self: closed.append(self))
    upstream = Upstream(NOWHERE, None, user="alice")
    used: list[Cluster] = []

    def work(cluster: Cluster) -> None:
        used.append(cluster)
        upstream.close()

    upstream.call(work)
    assert closed == used
    assert not upstream._idle


def test_wrong_searches_do_not_use_up_the_searches_of_a_session() -> None:
    with running_console(ConsoleSettings(bootstrap_servers=NOWHERE, port=0)) as url:
        browser = Browser(url)
        for wrong in ({"tail": "2"}, {"limit": "0"}):
            for _ in range(MOST_STREAMS_EACH + 1):
                answer = browser.ask("/topics/t/messages/stream", **wrong)
                assert "too_many" not in answer.text, wrong
        browser.close()


def test_a_log_in_that_nobody_waits_for_any_more_leaves_no_connection(monkeypatch) -> None:
    closed = threading.Event()
    begun: list[str] = []

    class Opened:
        user = "alice"

        def close(self) -> None:
            closed.set()

    def slow(self: ServerState, user: str, password: str) -> Any:
        begun.append(user)
        time.sleep(1.0)
        return Opened()

    monkeypatch.setattr(ServerState, "check_log_in", slow)
    monkeypatch.setattr(ConsoleSettings, "needs_log_in", property(lambda self: True))
    monkeypatch.setattr(application, "ANSWER_TIMEOUT_S", 0.2)
    with running_console(ConsoleSettings(bootstrap_servers=NOWHERE, port=0)) as url:
        browser = Browser(url)
        answer = browser.client.post("/login", json={"user": "alice", "password": "x"})
        assert answer.status_code == 504 and begun
        within(30, closed.is_set, "what it opened is closed")
        browser.close()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Any:
    yield
    left = [each.name for each in threading.enumerate() if each.name.startswith("console-")]
    deadline_s = time.monotonic() + 60
    while left and time.monotonic() < deadline_s:
        time.sleep(0.1)
        left = [each.name for each in threading.enumerate() if each.name.startswith("console-")]
    assert left == []
