"""Starts Python programs of ours: as forks of the server beside it where they would load the same,
else as everybody does.
"""

import functools
import inspect
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration_tests.forks.fork_server import LONGEST_REQUEST
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.local import processes

ROOT = Path(__file__).parents[2]

IS_ON = not ALL_FAULTS and os.environ.get("HEADRACE_FORK", "1") != "0"

BROKER = "broker"
"""The command."""

_LOADED = {
    True: (
        "storage_engine.broker.main",
        "storage_engine.tools.commands.broker",
        "cryptography.x509",
        "ssl",
        "uvloop",
    ),
    False: (
        "storage_engine.client.consumer.consumer",
        "storage_engine.client.producer.producer",
        "storage_engine.client.producer.transactions",
        "storage_engine.tools.commands.consume",
        "storage_engine.tools.commands.export",
        "storage_engine.tools.commands.groups",
        "storage_engine.tools.commands.local_cluster.down",
        "storage_engine.tools.commands.local_cluster.status",
        "storage_engine.tools.commands.mirror",
        "storage_engine.tools.commands.produce",
        "storage_engine.tools.commands.topics",
    ),
}
"""What has been loaded where a broker is forked, and where anything else is."""

_ROOM = {True: "-" * 1000, False: "-" * 5000}
"""For the arguments of a fork. What has longer ones is started."""

_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""NumPy and PyArrow start threads when they are imported, which no fork would have."""

_ANSWER_BYTES = 64


class _Server:
    """One of this process, started for the first fork, which ends when this process does."""

    def __init__(self, is_of_brokers: bool) -> None:
        self._turn = threading.Lock()
        self._numbers = itertools.count()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = ["-P", "-m", "integration_tests.forks.fork_server", str(theirs.fileno())]
            path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
            self._process = subprocess.Popen(
                [sys.executable, *command, _ROOM[is_of_brokers], *_LOADED[is_of_brokers]],
                pass_fds=[theirs.fileno()],
                env={
                    **os.environ,
                    **_ONE_THREAD,
                    "PYTHONPATH": os.pathsep.join(path),
                },
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
        number = next(self._numbers)
        packet = json.dumps({**request, "number": number}).encode()
        if len(packet) > LONGEST_REQUEST:
            return None
        with self._turn:
            socket.send_fds(self._control, [packet], descriptors)
            while packet := self._control.recv(_ANSWER_BYTES):
                answered, value = json.loads(packet)
                # Who was interrupted has left its answer.
                if answered == number:
                    found: int | None = value
                    return found
        raise ChildProcessError(f"the server of forks has ended: {self._process.poll()}")


class Forked(subprocess.Popen[Any]):
    """A process whose parent is the server, else as any other. What is overridden is what starts
    the process, and what asks the kernel whether it has ended."""

    if TYPE_CHECKING:
        _waitpid_lock: threading.Lock
        _close_pipe_fds: Callable[..., None]
        _handle_exitstatus: Callable[[int], None]

    _server: _Server | None = None
    """Whose child it is; None: a child of ours."""

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*given).arguments
        streams = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        pid = None
        if not asked["pass_fds"] and asked["preexec_fn"] is None and not asked["shell"]:
            arguments = [os.fspath(each) for each in asked["args"]]
            server = _server(is_of_brokers=BROKER in arguments)
            pid = server.start(
                arguments,
                [number if each < 0 else each for number, each in enumerate(streams)],
                cwd=asked["cwd"],
                env=asked["env"],
                is_session=asked["start_new_session"],
            )
        if pid is None:
            super()._execute_child(*given)
            return
        self._server = server
        self.pid = pid
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in names))

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self._server is None:
            found: int | None = super()._internal_poll(_deadstate=_deadstate)
            return found
        with self._waitpid_lock:
            if self.returncode is None:
                ended, status = self._try_wait(os.WNOHANG)
                if ended:
                    self._handle_exitstatus(status)
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._server is None:
            found: tuple[int, int] = super()._try_wait(wait_flags)
            return found
        if not wait_flags & os.WNOHANG:
            # A zombie of the server's, until we ask for its status.
            descriptor = os.pidfd_open(self.pid)
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll()
            finally:
                os.close(descriptor)
        status = self._server.wait_status(self.pid)
        return (0, 0) if status is None else (self.pid, status)


def popen(command: Sequence[str | os.PathLike[str]], **options: Any) -> "subprocess.Popen[Any]":
    """`subprocess.Popen`, forked where forks are on."""
    return (Forked if IS_ON else subprocess.Popen)(command, **options)


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    how: Callable[..., "subprocess.Popen[Any]"] = popen,
    input: Any = None,
    timeout: float | None = None,
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run` with captured output, forked where forks are on."""
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    pipe = subprocess.PIPE
    with how(command, stdin=stdin, stdout=pipe, stderr=pipe, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(command, process.wait(), out, err)


spawn_detached = functools.partial(processes.spawn_detached, start=Forked)


@functools.cache
def _server(*, is_of_brokers: bool) -> _Server:
    return _Server(is_of_brokers)


def _is_plain(arguments: Sequence[str]) -> bool:
    """Whether it is a program of ours, for our interpreter."""
    program, *options = arguments
    flags = options[1:2] if options[:1] == ["-P"] else options[:1]
    return program == sys.executable and flags in (["-m"], ["-c"])


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """What a start of Python reads. PYTHONPATH has our root, whoever starts something of ours."""
    return {
        name: text
        for name, text in environment.items()
        if name.startswith("PYTHON") and name != "PYTHONPATH"
    }
