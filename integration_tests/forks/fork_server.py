"""The process whose forks are brokers and commands: it has loaded what they load, and does nothing
else. It has one thread, no event loop, and one socket, by which it is told what to start.

    python -P -m integration_tests.forks.fork_server DESCRIPTOR ROOM

A request is one packet of JSON; one that starts something brings stdin, stdout and stderr with it.

    {"start": [argument, …], "cwd": …, "env": {…}, "session": …}    its pid, or null
    {"ended": pid}                                                  its wait status, null: runs yet

A child ends with this process, and this process with the one that holds the other end of the
socket. Linux shows ROOM, which is as long as the longest arguments, as the arguments of a child.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path
from typing import Any

LONGEST_REQUEST = 1 << 17
"""Bytes: of an environment mostly."""

LOADED = (
    "storage_engine.broker.main",
    "storage_engine.tools.commands.broker",
    "cryptography.x509",
    "ssl",
    "uvloop",
)
"""What a broker loads until it serves."""

_PR_SET_PDEATHSIG = 1
_PR_SET_MM = 35
_PR_SET_MM_ARG_END = 9
_ARG_START, _ARG_END = 47, 48
"""In /proc/self/stat, counted from 0: proc(5) counts from 1."""


class _WithoutPandas:
    """As in a broker."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("this process does without pandas", name=name)


class ForkServer:
    """Serves until its client is gone, or in a child until there is a program to run."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._pid = os.getpid()
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        # The pid and the name stand before.
        self._arguments_at = int(fields[_ARG_START - 2])
        self._room = int(fields[_ARG_END - 2]) - self._arguments_at

    def serve(self) -> list[str] | None:
        """In a child: what to run, after the interpreter's name. In the server: None, at its end."""
        while True:
            packet, descriptors, _, _ = socket.recv_fds(self._control, LONGEST_REQUEST, 3)
            if not packet:
                return None
            request = json.loads(packet)
            if "ended" in request:
                self._answer(_wait_status(request["ended"]))
                continue
            arguments: list[str] = request["start"]
            pid = self._fork() if self._has_room(arguments) else None
            if pid == 0:
                self._become(request, descriptors)
                return arguments[1:]
            for descriptor in descriptors:
                os.close(descriptor)
            self._answer(pid)

    def _fork(self) -> int:
        threads = os.listdir("/proc/self/task")  # noqa: PTH208 - names are enough
        assert len(threads) == 1, f"a fork would lose {len(threads) - 1} threads"
        return os.fork()

    def _has_room(self, arguments: list[str]) -> bool:
        return len(_joined(arguments)) < self._room

    def _answer(self, value: int | None) -> None:
        self._control.send(json.dumps(value).encode())

    def _become(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """What `subprocess` and a start of Python would have done."""
        _library().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._pid:
            os._exit(1)
        if request["session"]:
            os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        self._control.close()
        os.closerange(3, max(descriptors) + 1)
        os.chdir(request["cwd"])
        for name in os.environ.keys() - request["env"].keys():
            del os.environ[name]
        os.environ.update(request["env"])
        self._show_arguments(_joined(request["start"]))

    def _show_arguments(self, joined: bytes) -> None:
        """In /proc and by `ps`, where programs look for brokers."""
        ctypes.memset(self._arguments_at, 0, self._room)
        ctypes.memmove(self._arguments_at, joined, len(joined))
        # Who may not do that has many empty arguments at the end.
        end = ctypes.c_ulong(self._arguments_at + len(joined))
        _library().prctl(_PR_SET_MM, _PR_SET_MM_ARG_END, end, 0, 0)


def _joined(arguments: list[str]) -> bytes:
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)


def _wait_status(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return status if ended else None


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _run(arguments: list[str]) -> None:
    """As the interpreter: `-P -m MODULE ARGUMENT…`."""
    where = arguments.index("-m")
    sys.argv = ["-m", *arguments[where + 2 :]]
    runpy.run_module(arguments[where + 1], run_name="__main__", alter_sys=True)


def main() -> None:
    sys.meta_path.insert(0, _WithoutPandas)
    for name in LOADED:
        importlib.import_module(name)
    sys.meta_path.remove(_WithoutPandas)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        to_run = ForkServer(control).serve()
    if to_run is not None:
        _run(to_run)


if __name__ == "__main__":
    main()
