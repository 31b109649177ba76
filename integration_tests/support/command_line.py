"""Runs the command `headrace` as a user does, and looks at what it leaves on the machine."""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.forks.forked import popen, run
from storage_engine.client.cluster import Cluster
from storage_engine.tools.cli import main

COMMAND = [sys.executable, "-m", "storage_engine.tools.cli"]
OF_PROCESSES = ("broker", "machine", "start-broker", "up", "zookeeper")
"""Commands that are started as users do: what they start is what their tests are about."""
TIMEOUT_S = 120.0
UNKNOWN_TOPIC_MS = 500
"""The time for brokers to learn of a topic, where a test has made none."""
ROOT = Path(__file__).parents[2]


def headrace(*arguments: object, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """One command, to its end. It would not end if a detached child held our pipes."""
    how = subprocess.Popen if arguments[0] in OF_PROCESSES else popen
    command = [*COMMAND, *map(str, arguments)]
    return run(command, how=how, input=stdin, timeout=TIMEOUT_S, cwd=ROOT)


def succeed(*arguments: object, stdin: bytes = b"") -> str:
    """The output of a command that must exit with 0."""
    done = headrace(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def fail(*arguments: object, stdin: bytes = b"", status: int = 1) -> str:
    """The one line on stderr of a command that must fail, without `headrace: `."""
    done = headrace(*arguments, stdin=stdin)
    errors = done.stderr.decode()
    assert done.returncode == status, errors
    *_, last = errors.splitlines()
    assert last.startswith("headrace: "), errors
    return last.removeprefix("headrace: ")


def succeed_here(*arguments: object) -> None:
    """A command that must exit with 0, within this process: it prepares what a test looks at."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([str(argument) for argument in arguments]) == 0


def fail_here(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 1) -> str:
    """As `fail`, within this process: a start of Python for each of many mistakes takes long."""
    with giving_up_after(unknown_topic_wait_ms=UNKNOWN_TOPIC_MS):
        assert main([str(argument) for argument in arguments]) == status
    errors = capsys.readouterr().err
    assert errors.startswith("headrace: ") and errors.count("\n") == 1, errors
    return errors.removeprefix("headrace: ").rstrip()


@contextlib.contextmanager
def giving_up_after(**limits_ms: int) -> Iterator[None]:
    """Commands in the block that run within this process have these limits of `Cluster`, instead of
    those that a user has to wait for."""
    with pytest.MonkeyPatch.context() as patch:
        for name, limit_ms in limits_ms.items():
            patch.setitem(Cluster.__init__.__kwdefaults__, name, limit_ms)
        yield


def start(*arguments: object) -> "subprocess.Popen[str]":
    """A command that goes on until it is stopped."""
    how = subprocess.Popen if arguments[0] in OF_PROCESSES else popen
    return how(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def cluster_json(directory: Path) -> dict[str, Any]:
    """What other programs read."""
    document: dict[str, Any] = json.loads((directory / "cluster.json").read_text())
    return document


def processes_of(directory: Path) -> list[int]:
    """The pids of all processes with that folder in their arguments, but for commands of ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--dir" not in arguments and os.fsencode(directory) in b"\0".join(arguments):
            found.append(int(entry.name))
    return found


def listens(address: str) -> bool:
    """Whether anything takes connections there."""
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True
