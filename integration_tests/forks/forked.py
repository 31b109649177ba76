"""Starts Python programs of ours as forks of the server beside it, where that makes no difference.
"""

import functools
import inspect
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.local import processes

ROOT = Path(__file__).parents[2]

IS_ON = not ALL_FAULTS and os.environ.get("HEADRACE_FORK", "1") != "0"

_ROOM = "-" * 2000
"""For the arguments of a fork. What has longer ones is started."""

_ANSWER_BYTES = 64


class _Server:
    """One of this process, started for the first fork, which ends when this process does."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = ["-P", "-m", "integration_tests.forks.fork_server", str(theirs.fileno())]
            inherited = os.environ.get("PYTHONPATH", "")
            self._process = subprocess.Popen(
                [sys.executable, *command, _ROOM],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), inherited))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._of_python = _of_python(os.environ)

    def start(
        self,
        arguments: Sequence[str],
        descriptors: Sequence[int],
        *,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
        is_session: bool,
    ) -> int | None:
        """The pid; None where only a start will do."""
        given = dict(os.environ if env is None else env)
        if not _is_plain(arguments) or _of_python(given) != self._of_python:
            return None
        request = {
            "start": list(arguments),
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": given,
            "session": is_session,
        }
        return self._ask(request, descriptors)

    def wait_status(self, pid: int) -> int | None:
        """Of a fork, once; None while it runs."""
        return self._ask({"ended": pid})

    def _ask(self, request: Mapping[str, object], descriptors: Sequence[int] = ()) -> int | None:
        with self._turn:
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
            answer = self._control.recv(_ANSWER_BYTES)
        assert answer, f"the server of forks has ended: {self._process.poll()}"
        found: int | None = json.loads(answer)
        return found


class Forked(subprocess.Popen[Any]):
    """A process whose parent is the server, else as any other."""

    _is_forked = False

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*given).arguments
        streams = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        pid = None
        if not asked["pass_fds"] and asked["preexec_fn"] is None and not asked["shell"]:
            pid = _server().start(
                [os.fspath(each) for each in asked["args"]],
                [number if given < 0 else given for number, given in enumerate(streams)],
                cwd=asked["cwd"],
                env=asked["env"],
                is_session=asked["start_new_session"],
            )
        if pid is None:
            super()._execute_child(*given)
            return
        self._is_forked = True
        self.pid = pid
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in names))

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if not self._is_forked:
            found: int | None = super()._internal_poll(_deadstate=_deadstate)
            return found
        with self._waitpid_lock:
            if self.returncode is None:
                ended, status = self._try_wait(os.WNOHANG)
                if ended:
                    self._handle_exitstatus(status)
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if not self._is_forked:
            found: tuple[int, int] = super()._try_wait(wait_flags)
            return found
        if not wait_flags & os.WNOHANG:
            # A zombie of the server's, until we ask for its status.
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [])
            finally:
                os.close(descriptor)
        status = _server().wait_status(self.pid)
        return (0, 0) if status is None else (self.pid, status)


def popen(command: Sequence[str | os.PathLike[str]], **options: Any) -> "subprocess.Popen[Any]":
    """`subprocess.Popen`, forked where forks are on."""
    return (Forked if IS_ON else subprocess.Popen)(command, **options)


def spawn_detached(
    command: Sequence[str], *, cwd: Path, output: Path, environment: dict[str, str] | None = None
) -> int:
    """As that of `processes`."""
    with output.open("wb") as sink:
        child = Forked(
            list(command),
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    processes._children[child.pid] = processes._Child(child, list(command))
    return child.pid


@functools.cache
def _server() -> _Server:
    return _Server()


def _is_plain(arguments: Sequence[str]) -> bool:
    """Whether it is a module that our interpreter is to run, as it runs the server."""
    program, *options = arguments
    return program == sys.executable and (options[:1] == ["-m"] or options[:2] == ["-P", "-m"])


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """What a start of Python reads. PYTHONPATH has our root, whoever starts something of ours."""
    return {
        name: text
        for name, text in environment.items()
        if name.startswith("PYTHON") and name != "PYTHONPATH"
    }
