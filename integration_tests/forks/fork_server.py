"""The process whose forks are brokers, commands and members of groups: it has loaded what they
load, and does nothing else. It has one thread, no event loop, and one socket, by which it is told
what to start.

    python -P -m integration_tests.forks.fork_server DESCRIPTOR ROOM MODULE…

A request is one packet of JSON, with a number that is all its own; one that starts something brings
stdin, stdout and stderr with it. The answer has that number, and

    {"start": [argument, …], "cwd": …, "env": {…}, "session": …}    the pid, or null
    {"ended": pid}                                                  the wait status, null: runs yet

A child ends with this process, and this process with the one that holds the other end of the
socket. What Linux shows as the arguments of a child has the length of ours, for the sake of ROOM.
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
import types
from pathlib import Path
from typing import Any

LONGEST_REQUEST = 1 << 17
"""Bytes: of an environment mostly."""

_PR_SET_PDEATHSIG = 1
_ARG_START, _ARG_END = 47, 48
"""In /proc/self/stat, counted from 0: proc(5) counts from 1."""


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
        """In a child what to run, after the interpreter's name; in the server None, at its end."""
        while True:
            packet, descriptors, _, _ = socket.recv_fds(self._control, LONGEST_REQUEST, 3)
            if not packet:
                return None
            request = json.loads(packet)
            if "ended" in request:
                self._answer(request, _wait_status(request["ended"]))
                continue
            arguments: list[str] = request["start"]
            pid = os.fork() if self._can_fork(arguments) else None
            if pid == 0:
                self._become(request, descriptors)
                return arguments[1:]
            for descriptor in descriptors:
                os.close(descriptor)
            self._answer(request, pid)

    def _can_fork(self, arguments: list[str]) -> bool:
        """Not with threads, which a fork would lose: those of a library, say, that has others with
        another version."""
        has_threads = len(os.listdir("/proc/self/task")) > 1  # noqa: PTH208 - names are enough
        return not has_threads and len(_joined(arguments)) < self._room

    def _answer(self, request: dict[str, Any], value: int | None) -> None:
        self._control.send(json.dumps([request["number"], value]).encode())

    def _become(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """What `subprocess` and a start of Python would have done."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
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
        """In /proc and by `ps`, where programs look for brokers: with empty ones at the end."""
        ctypes.memset(self._arguments_at, 0, self._room)
        ctypes.memmove(self._arguments_at, joined, len(joined))


def _joined(arguments: list[str]) -> bytes:
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)


def _wait_status(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return status if ended else None


def _run(arguments: list[str]) -> None:
    """As the interpreter: `[-P] -m MODULE ARGUMENT…`, `[-P] -c PROGRAM ARGUMENT…`."""
    flag, program, *rest = arguments[1:] if arguments[0] == "-P" else arguments
    sys.argv = [flag, *rest]
    if flag == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(program, vars(sys.modules["__main__"]))


def main() -> None:
    descriptor, _, *modules = sys.argv[1:]
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(descriptor)) as control:
        to_run = ForkServer(control).serve()
    if to_run is not None:
        _run(to_run)


if __name__ == "__main__":
    main()
