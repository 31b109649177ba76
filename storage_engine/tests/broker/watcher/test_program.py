"""The watcher's own side: what it reads, and who has ended."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_engine.broker.watcher import NO_SESSION
from storage_engine.broker.watcher.program import Lines, has_ended

ROOT = Path(__file__).parents[4]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reads, writes = os.pipe()
    yield reads, writes
    os.close(reads)
    os.close(writes)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_of_sessions_the_last_whole_line_counts(pipe) -> None:
    lines = Lines(pipe[0])
    os.write(pipe[1], b"broker\none\ntw")
    lines.read()
    assert (lines.first, lines.last) == (b"broker", b"one")
    os.write(pipe[1], b"o\nthr")
    lines.read()
    assert (lines.first, lines.last) == (b"broker", b"two")
    assert not lines.is_over


def test_the_last_words_of_a_killed_process_are_read(pipe, sleeper) -> None:
    lines = Lines(pipe[0])
    ended = os.pidfd_open(sleeper.pid)
    assert not has_ended(ended, lines, 0.01)
    os.write(pipe[1], b"broker\nsession\n")
    sleeper.kill()
    assert has_ended(ended, lines, None)
    assert lines.last == b"session"
    os.close(ended)


def test_a_closed_session_is_an_end(pipe, sleeper) -> None:
    lines = Lines(pipe[0])
    ended = os.pidfd_open(sleeper.pid)
    os.write(pipe[1], b"broker\n" + NO_SESSION + b"\n")
    assert has_ended(ended, lines, None)
    assert sleeper.poll() is None
    os.close(ended)


def test_the_end_of_the_pipe_is_no_proof(sleeper) -> None:
    reads, writes = os.pipe()
    os.close(writes)
    lines = Lines(reads)
    ended = os.pidfd_open(sleeper.pid)
    assert not has_ended(ended, lines, 0.05)
    assert not has_ended(ended, lines, 0.05)
    sleeper.kill()
    assert has_ended(ended, lines, None)
    os.close(ended)
    os.close(reads)


def test_a_watcher_that_waits_has_loaded_next_to_nothing() -> None:
    """A start of a broker is not slowed down by it: the modules that close a session come later."""
    program = (
        "import sys\n"
        "import storage_engine.broker.watcher.program\n"
        "heavy = {'kazoo', 'logging', 'dataclasses', 'json', 'ssl', 'typing'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    # Without site: what a development install loads at a start is none of ours.
    subprocess.run([sys.executable, "-S", "-c", program], check=True, cwd=ROOT, timeout=120)
