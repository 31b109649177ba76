"""The end of a process of this machine, as the kernel tells it: R-CTL12."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_engine.net import local_processes
from storage_engine.net.local_processes import LocalProcesses, PidDescriptor
from storage_engine.tests.net.serving import eventually, stays

SLEEPER = ("sleep", "600")
OUTLIVED = """
import ctypes, sys, threading
libc = ctypes.CDLL(None)
threading.Thread(target=lambda: sys.stdin.read(1)).start()
print("two threads", flush=True)
libc.syscall(60, 0)
"""
"""Ends its first thread alone, by exit(2) of x86-64; the other waits for its input."""


def open_processes() -> int:
    """Descriptors of processes alone: others of this process come and go."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += "[pidfd]" in str(each.readlink())
    return found


@pytest.fixture
def processes(loop_thread) -> LocalProcesses:
    return loop_thread.call(lambda: LocalProcesses(loop_thread.loop))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER) as process:
        yield process
        process.kill()


def watched(loop_thread, processes: LocalProcesses, pid: int) -> tuple[PidDescriptor, list[str]]:
    process = loop_thread.call(lambda: processes.open(pid))
    assert process is not None
    ends: list[str] = []
    loop_thread.call(lambda: process.when_ended(lambda: ends.append("ended")))
    return process, ends


def test_a_killed_process_has_ended_before_its_parent_waits_for_it(loop_thread, processes, sleeper):
    _, ends = watched(loop_thread, processes, sleeper.pid)
    assert ends == []
    os.kill(sleeper.pid, 9)
    eventually(lambda: ends == ["ended"])
    assert stays(lambda: ends == ["ended"])


def test_who_has_ended_before_it_is_watched_is_told_as_well(loop_thread, processes, sleeper):
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    _, ends = watched(loop_thread, processes, sleeper.pid)
    eventually(lambda: ends == ["ended"])


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of exit(2) is another")
def test_a_process_lives_as_long_as_one_of_its_threads(loop_thread, processes):
    command = [sys.executable, "-c", OUTLIVED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        _, ends = watched(loop_thread, processes, process.pid)
        assert stays(lambda: ends == [])
        process.kill()
        eventually(lambda: ends == ["ended"])


def test_a_stopped_process_lives(loop_thread, processes, sleeper):
    _, ends = watched(loop_thread, processes, sleeper.pid)
    os.kill(sleeper.pid, 19)
    assert stays(lambda: ends == [])


def test_who_closes_hears_nothing_more_and_gives_the_descriptor_back(
    loop_thread, processes, sleeper
):
    before = open_processes()
    process, ends = watched(loop_thread, processes, sleeper.pid)
    assert open_processes() == before + 1
    loop_thread.call(process.close)
    loop_thread.call(process.close)
    sleeper.kill()
    assert stays(lambda: ends == [])
    assert open_processes() == before


def test_a_process_is_known_by_its_start_as_it_tells_itself(loop_thread, processes):
    assert processes.own is not None
    assert processes.own.pid == os.getpid()
    own = loop_thread.call(lambda: processes.open(os.getpid()))
    assert own.start_ticks == processes.own.start_ticks
    loop_thread.call(own.close)


def test_nobody_is_watched_under_a_number_that_no_process_has(loop_thread, processes, sleeper):
    sleeper.kill()
    sleeper.wait()
    assert loop_thread.call(lambda: processes.open(sleeper.pid)) is None


def test_as_many_are_watched_as_there_is_room_for(loop_thread, processes, sleeper, monkeypatch):
    monkeypatch.setattr(local_processes, "MAX_OPEN", 1)
    process, _ = watched(loop_thread, processes, sleeper.pid)
    assert loop_thread.call(lambda: processes.open(os.getpid())) is None
    loop_thread.call(process.close)
    process, _ = watched(loop_thread, processes, os.getpid())
    loop_thread.call(process.close)


@pytest.mark.parametrize("is_own", [True, False])
def test_who_sees_processes_of_another_namespace_says_nothing(
    loop_thread, monkeypatch, tmp_path, is_own
):
    """/proc calls this process by a number that it has elsewhere."""
    number = str(os.getpid()) if is_own else "1234567"
    (tmp_path / number / "ns").mkdir(parents=True)
    (tmp_path / "self").symlink_to(number)
    (tmp_path / "self" / "stat").write_text(Path("/proc/self/stat").read_text())
    (tmp_path / "self" / "ns" / "pid").touch()
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("0-0\n")
    monkeypatch.setattr(local_processes, "_PROC", tmp_path)
    own = loop_thread.call(lambda: LocalProcesses(loop_thread.loop)).own
    assert (own is not None) is is_own
