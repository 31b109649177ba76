"""A replay of dead letters ends with the session that began it, or when its user stops it."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_console.http.sessions import Session, Sessions
from headrace_console.problem import ConsoleError
from headrace_console.screens import replay_runs
from headrace_console.screens.replay_runs import (
    MOST_RUNNING,
    LetterPreview,
    ReplayRun,
    ReplayRuns,
)
from headrace_console.tests.console_support import within
from storage_engine.letter_replay.selection import LetterSelection

LETTERS = 1_000


class SlowReplay:
    """A letter every few milliseconds, each a chunk of its own."""

    pause_s = 0.005

    def __init__(self, *given: Any, **more: Any) -> None: ...

    def run(self, survey: Any, on_progress: Any) -> int:
        for sent in range(1, LETTERS + 1):
            time.sleep(self.pause_s)
            on_progress(sent)
        return LETTERS


@pytest.fixture
def runs(monkeypatch) -> Iterator[ReplayRuns]:
    monkeypatch.setattr(replay_runs, "LetterReplay", SlowReplay)
    made = ReplayRuns()
    yield made
    made.close()
    assert not [each for each in threading.enumerate() if each.name == "console-replay"]


def upstream(user: str | None = None) -> Any:
    return SimpleNamespace(user=user, client=lambda **_: contextlib.nullcontext())


def shown() -> LetterPreview:
    survey: Any = SimpleNamespace(selected=LETTERS, kinds=Counter())
    selection = LetterSelection(topics=frozenset())
    until_s = time.monotonic() + 60
    return LetterPreview(
        topic="dead", selection=selection, limit=None, survey=survey, until_s=until_s
    )


def begin(runs: ReplayRuns, sessions: Sessions, session: Session, user: str | None) -> ReplayRun:
    return runs.begin(upstream(user), shown(), is_alive=lambda: sessions.is_alive(session))


def ended(run: ReplayRun) -> str:
    return within(30, lambda: run.state if run.state != "running" else None, "the end")


def test_a_replay_ends_after_its_chunk_when_its_session_has_ended(runs) -> None:
    sessions = Sessions()
    session = sessions.begin(None)
    run = begin(runs, sessions, session, None)
    within(30, lambda: run.sent, "the first letter")
    assert run.state == "running"
    sessions.end(session)
    assert ended(run) == "stopped"
    assert run.message is not None and "the session that began it has ended" in run.message
    assert 0 < run.sent < LETTERS


def test_its_user_may_stop_a_replay_from_another_session_and_nobody_else_may(runs) -> None:
    sessions = Sessions()
    session = sessions.begin(None)
    run = begin(runs, sessions, session, "alice")
    assert runs.of_topic("dead") == [run] and runs.get(run.replay_id) is run
    assert run.document["user"] == "alice"
    with pytest.raises(ConsoleError, match="'alice' has begun"):
        runs.stop(run, "bob")
    assert run.state == "running"
    runs.stop(run, "alice")
    assert ended(run) == "stopped" and "it was stopped" in str(run.message)


def test_few_replays_run_at_a_time_and_few_are_remembered(runs, monkeypatch) -> None:
    sessions = Sessions()
    session = sessions.begin(None)
    first = [begin(runs, sessions, session, None) for _ in range(MOST_RUNNING)]
    with pytest.raises(ConsoleError, match="replays run already"):
        begin(runs, sessions, session, None)
    for each in first:
        runs.stop(each, None)
        ended(each)
    monkeypatch.setattr(SlowReplay, "pause_s", 0)
    monkeypatch.setattr(replay_runs, "MOST_RUNS", 6)
    for _ in range(8):
        run = begin(runs, sessions, session, None)
        assert ended(run) == "done" and run.sent == LETTERS
    assert len(runs.of_topic("dead")) == 6


def test_no_replay_begins_once_the_console_ends(runs) -> None:
    sessions = Sessions()
    session = sessions.begin(None)
    run = begin(runs, sessions, session, None)
    runs.close()
    assert run.state == "stopped" and "the console ended" in str(run.message)
    with pytest.raises(ConsoleError):
        begin(runs, sessions, session, None)


def test_a_replay_that_meets_an_error_of_ours_has_failed_and_says_so(runs, monkeypatch) -> None:
    def broken(*_: Any) -> int:
        raise ValueError("boom")

    monkeypatch.setattr(SlowReplay, "run", broken)
    sessions = Sessions()
    run = begin(runs, sessions, sessions.begin(None), None)
    assert ended(run) == "failed" and "boom" in str(run.message)
