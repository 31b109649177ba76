"""A fork differs from a start in nothing that a test could see, but for its parent."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.forks import forked
from integration_tests.support.cluster_support import wait_until
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local import processes

SHOWS = """
import atexit, json, os, random, signal, sys
atexit.register(print, "the end")
print(json.dumps({
    "arguments": sys.argv,
    "main": __name__ == "__main__" and sys.modules["__main__"].sys is sys,
    "cwd": os.getcwd(),
    "environment": dict(os.environ),
    "handlers": [repr(signal.getsignal(number)) for number in range(1, 32)],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "leads a session": os.getsid(0) == os.getpid(),
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "input": sys.stdin.read(),
    "threads": len(os.listdir("/proc/self/task")),
}))
print("said", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
WAITS = "import time; print('up', flush=True); time.sleep(600)"
HOWS = [subprocess.Popen, forked.Forked]


@pytest.mark.parametrize("is_session", [False, True])
def test_a_fork_gets_what_a_start_gets(is_session: bool, tmp_path: Path) -> None:
    seen = []
    for how in HOWS:
        done = forked.run(
            [sys.executable, "-P", "-c", SHOWS, "3", "ü"],
            how=how,
            input="words",
            text=True,
            cwd=tmp_path,
            env={**os.environ, "SAID": "so"},
            start_new_session=is_session,
        )
        shown, end = done.stdout.splitlines()
        seen.append((json.loads(shown), end, done.stderr, done.returncode))
    started, forks = seen
    assert started == forks
    assert started[1:] == ("the end", "said\n", 3)


def test_each_fork_has_random_numbers_of_its_own() -> None:
    program = "import os, random, uuid; print(random.random(), uuid.uuid4(), os.urandom(8))"
    said = [forked.run([sys.executable, "-c", program], how=forked.Forked).stdout for _ in range(2)]
    assert said[0] and said[0] != said[1]


@pytest.mark.parametrize("how", HOWS)
def test_a_signal_ends_it_and_is_told(how) -> None:
    command = [sys.executable, "-c", WAITS]
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with how(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.readline()
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
            process.send_signal(number)
            assert process.wait(60) == -number
            assert (b"KeyboardInterrupt" in process.stderr.read()) == (number == signal.SIGINT)


def test_it_is_found_by_its_arguments(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", WAITS, "mark", str(tmp_path)]
    with forked.Forked(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            assert processes.find_process(["mark", str(tmp_path)]) == process.pid
            shown = processes.command_line(process.pid)
            assert shown is not None and shown[: len(command)] == command
        finally:
            process.kill()
    assert processes.find_process(["mark", str(tmp_path)]) is None


def test_what_has_more_to_say_or_another_python_is_started() -> None:
    parent = "import os; print(os.getppid())"
    command = [sys.executable, "-c", parent]
    large = {**os.environ, **dict.fromkeys(("A", "B"), "large" * 20_000)}
    pids = [
        int(forked.run(command, how=forked.Forked).stdout),
        int(forked.run([*command, forked.BROKER], how=forked.Forked).stdout),
        int(forked.run([*command, "long" * 2000], how=forked.Forked).stdout),
        int(forked.run(command, how=forked.Forked, env=large).stdout),
        int(forked.run(command, how=forked.Forked, env={**os.environ, "PYTHONUTF8": "1"}).stdout),
    ]
    assert [pid == os.getpid() for pid in pids] == [False, False, True, True, True]


class InterruptedSocket:
    """Ctrl-C comes while one waits for the answer."""

    def __init__(self, real: socket.socket) -> None:
        self.sendmsg = real.sendmsg

    def recv(self, size: int) -> bytes:
        raise KeyboardInterrupt


def test_whoever_is_interrupted_leaves_the_answer_to_nobody_else(monkeypatch) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit(7)"]
    assert forked.run(command, how=forked.Forked).returncode == 7
    server = forked._server(is_of_brokers=False)
    with monkeypatch.context() as patch:
        patch.setattr(server, "_control", InterruptedSocket(server._control))
        with pytest.raises(KeyboardInterrupt):
            forked.Forked(command)
    assert forked.run(command, how=forked.Forked).returncode == 7


PARENT = """
import subprocess, sys
from integration_tests.forks.forked import Forked
child = Forked([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_forks_do_not_outlive_the_process_that_asked_for_them() -> None:
    command = [sys.executable, "-c", PARENT, WAITS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
    wait_until(lambda: processes.command_line(pid) is None, "the fork is gone")


@in_full
def test_tests_of_signals_pass_in_a_run_that_ignores_them() -> None:
    """As one that `nohup make test &` starts, with workers."""
    test = f"{__file__}::test_a_signal_ends_it_and_is_told"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", test]
    done = subprocess.run(
        ["nohup", "sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
        env={name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
