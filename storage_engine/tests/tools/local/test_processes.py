"""Child processes: known by their arguments, stopped for certain, holding nothing of ours."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_engine.tools.local.processes import (
    StopOutcome,
    command_line,
    exit_status,
    find_process,
    is_running,
    kill_process,
    spawn_detached,
    stop_process,
)

OBEDIENT = "import time; print(1, flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {OBEDIENT}"


class Child:
    """A stand-in for a broker."""

    def __init__(self, directory: Path, code: str) -> None:
        self.output = directory / "output"
        self.mark = ("broker", str(directory / "server.properties"))
        self.pid = spawn_detached(
            [sys.executable, "-c", code, *self.mark], cwd=directory, output=self.output
        )
        deadline = time.monotonic() + 60
        while not self.output.read_bytes():
            assert time.monotonic() < deadline, "the child says nothing"
            time.sleep(0.01)


@pytest.fixture
def obedient(tmp_path: Path) -> Iterator[Child]:
    child = Child(tmp_path, OBEDIENT)
    yield child
    kill_process(child.pid, child.mark)


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[Child]:
    child = Child(tmp_path, STUBBORN)
    yield child
    kill_process(child.pid, child.mark)


def test_a_child_is_known_by_its_mark_and_found_without_its_pid(obedient: Child) -> None:
    assert is_running(obedient.pid, obedient.mark)
    assert find_process(obedient.mark) == obedient.pid


def test_a_process_of_that_pid_without_the_mark_is_not_ours(obedient: Child) -> None:
    other = ("broker", "/elsewhere/server.properties")
    assert not is_running(obedient.pid, other)
    assert stop_process(obedient.pid, other, timeout_s=5) is StopOutcome.NOT_RUNNING
    assert is_running(obedient.pid, obedient.mark)


def test_a_mark_must_stand_in_one_piece(obedient: Child) -> None:
    assert not is_running(obedient.pid, tuple(reversed(obedient.mark)))


def test_sigterm_is_enough_for_an_obedient_child(obedient: Child) -> None:
    assert stop_process(obedient.pid, obedient.mark, timeout_s=60) is StopOutcome.STOPPED
    assert exit_status(obedient.pid) == -signal.SIGTERM
    assert stop_process(obedient.pid, obedient.mark, timeout_s=1) is StopOutcome.NOT_RUNNING


def test_a_stopped_process_has_let_go_of_its_port(tmp_path: Path) -> None:
    # Threads make the end of a process take longer than the loss of its command line.
    code = (
        "import socket, threading, time; s = socket.create_server(('127.0.0.1', 0));"
        " hold = bytearray(1 << 28);"
        " [threading.Thread(target=time.sleep, args=(60,)).start() for _ in range(50)];"
        " print(s.getsockname()[1], flush=True); time.sleep(60)"
    )
    for _ in range(5):
        child = Child(tmp_path, code)
        port = int(child.output.read_text())
        kill_process(child.pid, child.mark)
        assert exit_status(child.pid) == -signal.SIGKILL
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_stubborn_child_is_killed_when_its_time_is_over(stubborn: Child) -> None:
    assert stop_process(stubborn.pid, stubborn.mark, timeout_s=0.2) is StopOutcome.KILLED
    assert exit_status(stubborn.pid) == -signal.SIGKILL


def test_a_child_killed_from_outside_is_gone_at_once(obedient: Child) -> None:
    os.kill(obedient.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while is_running(obedient.pid, obedient.mark):
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.01)
    assert command_line(obedient.pid) is None


def test_a_child_holds_no_descriptor_of_ours_and_leads_its_own_session(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    child = Child(tmp_path, OBEDIENT)
    try:
        os.close(writer)
        assert os.read(reader, 1) == b""  # end of file: nobody else has the writing end
        assert os.getsid(child.pid) == child.pid
        held = {link.readlink() for link in Path(f"/proc/{child.pid}/fd").iterdir()}
        assert held <= {Path("/dev/null"), child.output}
    finally:
        os.close(reader)
        kill_process(child.pid, child.mark)


def test_no_pid_is_not_running() -> None:
    assert not is_running(None, ("broker", "x"))
    assert stop_process(None, ("broker", "x"), timeout_s=1) is StopOutcome.NOT_RUNNING
