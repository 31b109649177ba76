"""Databases for the tests of the keyed sink: a file of SQLite, and a PostgreSQL server of its own,
on a free port, in a folder of its own, gone after the tests."""

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
from typing import Any

import pytest

from integration_tests.cluster_support import wait_until

POSTGRES_USERS = ("postgres", "nobody")
"""The server refuses to run as root."""

FAST = ("-c", "fsync=off", "-c", "max_connections=20", "-c", "shared_buffers=16MB")
"""A server that is killed with its machine is not what is tested."""


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URL of a database; skips the test, with the reason, where there is no server."""
    binaries = _binaries()
    pytest.importorskip("psycopg", reason="the package psycopg is not installed")
    # Not in pytest's own folders, which nobody but root may enter.
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    user = _user()
    if user is not None:
        shutil.chown(folder, user)
    data, log = folder / "data", folder / "log"
    try:
        made = subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "tests", "-A", "trust", "-N", "-E", "UTF8"],
            user=user, cwd=folder, capture_output=True, text=True,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        port = _free_port()
        with log.open("wb") as output:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port),
                 "-k", folder, *FAST],
                user=user, cwd=folder, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            wait_until(lambda: _answers(port, server, log), "PostgreSQL takes connections")
            yield f"postgresql+psycopg://tests@127.0.0.1:{port}/postgres"
        finally:
            # Without a wait for clients: the killed drivers' connections may linger.
            server.send_signal(signal.SIGQUIT)
            server.wait()
    finally:
        shutil.rmtree(folder)


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


def _answers(port: int, server: subprocess.Popen[Any], log: Path) -> bool:
    import psycopg

    assert server.poll() is None, log.read_text()
    try:
        psycopg.connect(host="127.0.0.1", port=port, user="tests", dbname="postgres").close()
    except psycopg.OperationalError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """One server for the tests of a file."""
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path) -> str:
    """Of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/database"
    return str(request.getfixturevalue("postgres_url"))
