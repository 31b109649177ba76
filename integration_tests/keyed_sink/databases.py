"""Databases for the tests of the keyed sink: a file of SQLite, and a PostgreSQL server of its own,
on a free port, in a folder of its own, gone after the tests; killed and begun again as they want.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.cluster_support import wait_until

POSTGRES_USERS = ("postgres", "nobody")
"""The server refuses to run as root."""

FAST = ("-c", "fsync=off", "-c", "max_connections=20", "-c", "shared_buffers=16MB")
"""A server that is killed with its machine is not what is tested."""


class PostgresServer:
    """The processes of one server, on a folder that outlives them."""

    host = "127.0.0.1"

    def __init__(self, binaries: Path, folder: Path, user: str | None) -> None:
        self._binaries, self._folder, self._user = binaries, folder, user
        self.port = _free_port()
        made = subprocess.run(
            [binaries / "initdb", "-D", folder / "data", "-U", "tests", "-A", "trust", "-N",
             "-E", "UTF8"],
            user=user, cwd=folder, capture_output=True, text=True,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr

    def url(self, port: int | None = None) -> str:
        """Of its database; `port`: of whatever leads to it, instead of its own."""
        return f"postgresql+psycopg://tests@{self.host}:{port or self.port}/postgres"

    def start(self) -> None:
        """Until it takes connections, after whatever it has to recover."""
        with (self._folder / "log").open("ab") as output:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._folder / "data", "-h", self.host,
                 "-p", str(self.port), "-k", self._folder, *FAST],
                user=self._user, cwd=self._folder, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        wait_until(self._answers, "PostgreSQL takes connections")

    def stop(self) -> None:
        """Without a wait for clients: the killed drivers' connections may linger."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def kill(self) -> None:
        """All its processes at one moment, with SIGKILL."""
        # So that it starts no other meanwhile.
        self._process.send_signal(signal.SIGSTOP)
        for pid in [*_children(self._process.pid), self._process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _answers(self) -> bool:
        import psycopg

        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            psycopg.connect(host=self.host, port=self.port, user="tests", dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True


@contextlib.contextmanager
def postgres() -> Iterator[PostgresServer]:
    """A server that is up; skips the test, with the reason, where there is none."""
    binaries = _binaries()
    pytest.importorskip("psycopg", reason="the package psycopg is not installed")
    # Not in pytest's own folders, which nobody but root may enter.
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    user = _user()
    if user is not None:
        shutil.chown(folder, user)
    try:
        server = PostgresServer(binaries, folder, user)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _children(parent: int) -> list[int]:
    """Process ids; a server's are in sessions of their own."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                entry.name.isdigit()
                and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            ):
                found.append(int(entry.name))
    return found


def _binaries() -> Path:
    found = sorted(Path("/").glob("usr/lib/postgresql/*/bin/postgres"))
    if not found:
        pytest.skip(
            "no PostgreSQL server in /usr/lib/postgresql/*/bin: install the package postgresql"
        )
    return found[-1].parent


def _user() -> str | None:
    """None: the user of the test, who is not root."""
    if os.geteuid() != 0:
        return None
    known = {each.pw_name for each in pwd.getpwall()}
    for name in POSTGRES_USERS:
        if name in known:
            return name
    pytest.skip(f"PostgreSQL does not run as root, and there is no user {POSTGRES_USERS}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    """One for the tests of a file."""
    with postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path) -> str:
    """Of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/database"
    return str(request.getfixturevalue("postgres_server").url())
