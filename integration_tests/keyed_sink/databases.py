"""Databases for the tests of the keyed sink: a file of SQLite, and servers of PostgreSQL and
MariaDB on free ports, in folders of their own, gone after the tests; killed and begun again as they
want.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration_tests.keyed_sink.keyed_faults import DATABASES
from integration_tests.support.cluster_support import wait_until

SERVERS = {"postgresql": "postgres_server", "mariadb": "mariadb_server"}
"""By the database, the fixture of its server."""

POSTGRES_USERS = ("postgres", "nobody")
MARIADB_USERS = ("mysql", "nobody")
"""The servers refuse to run as root."""

FAST = ("-c", "fsync=off", "-c", "max_connections=20", "-c", "shared_buffers=16MB")
"""A server that is killed with its machine is not what is tested."""

MARIADB_START = """\
CREATE DATABASE IF NOT EXISTS tests;
CREATE USER IF NOT EXISTS 'tests'@'127.0.0.1';
GRANT ALL ON *.* TO 'tests'@'127.0.0.1';
"""
AS_MANY_ARE = (
    "--sql-mode=",
    "--default-time-zone=-05:00",
    "--character-set-server=latin1",
    "--collation-server=latin1_swedish_ci",
    "--default-storage-engine=Aria",
)
"""What old servers are set to: values are cut in silence, text is compared without case, a new
table has no transactions."""


class Server:
    """The processes of one server, on a folder that outlives them."""

    host = "127.0.0.1"

    def __init__(self, folder: Path, user: str | None) -> None:
        self._folder, self._user = folder, user
        # A server of MariaDB that starts deletes each temporary table in its temporary folder.
        self._environment = {**os.environ, "TMPDIR": str(folder)}
        self.port = _free_port()

    def url(self, port: int | None = None) -> str:
        """Of its database; `port`: of whatever leads to it, instead of its own."""
        raise NotImplementedError

    def _command(self) -> list[str | Path]:
        raise NotImplementedError

    def _connect(self) -> None:
        """Raises what its driver does when it takes no connection."""
        raise NotImplementedError

    def _run(self, *command: str | Path) -> None:
        made = subprocess.run(
            command, user=self._user, cwd=self._folder, env=self._environment,
            capture_output=True, text=True,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr

    def start(self) -> None:
        """Until it takes connections, after whatever it has to recover."""
        with (self._folder / "log").open("ab") as output:
            self._process = subprocess.Popen(
                self._command(), user=self._user, cwd=self._folder, env=self._environment,
                stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        wait_until(self._answers, "the database takes connections")

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
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            self._connect()
        except Exception as error:  # noqa: BLE001 - of two drivers, one of which may not be there
            assert type(error).__name__ == "OperationalError", error
            return False
        return True


class PostgresServer(Server):
    def __init__(self, binaries: Path, folder: Path, user: str | None) -> None:
        super().__init__(folder, user)
        self._binaries = binaries
        self._run(binaries / "initdb", "-D", folder / "data", "-U", "tests", "-A", "trust", "-N",
                  "-E", "UTF8")  # fmt: skip

    def url(self, port: int | None = None) -> str:
        return f"postgresql+psycopg://tests@{self.host}:{port or self.port}/postgres"

    def _command(self) -> list[str | Path]:
        return [self._binaries / "postgres", "-D", self._folder / "data", "-h", self.host,
                "-p", str(self.port), "-k", self._folder, *FAST]  # fmt: skip

    def _connect(self) -> None:
        import psycopg

        psycopg.connect(host=self.host, port=self.port, user="tests", dbname="postgres").close()


class MariaDbServer(Server):
    def __init__(self, binary: Path, folder: Path, user: str | None) -> None:
        super().__init__(folder, user)
        self._binary = binary
        (folder / "start.sql").write_text(MARIADB_START)
        self._run("mariadb-install-db", "--no-defaults", f"--datadir={folder / 'data'}",
                  "--auth-root-authentication-method=normal", "--skip-test-db")  # fmt: skip

    def url(self, port: int | None = None) -> str:
        return f"mysql+pymysql://tests@{self.host}:{port or self.port}/tests"

    def _command(self) -> list[str | Path]:
        folder = self._folder
        return [self._binary, "--no-defaults", f"--datadir={folder / 'data'}",
                f"--bind-address={self.host}", f"--port={self.port}",
                f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}",
                f"--init-file={folder / 'start.sql'}", "--skip-name-resolve",
                "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=2",
                "--innodb-flush-method=nosync", "--sync-frm=0",
                *AS_MANY_ARE]  # fmt: skip

    def _connect(self) -> None:
        import pymysql

        pymysql.connect(host=self.host, port=self.port, user="tests", database="tests").close()


@contextlib.contextmanager
def postgres() -> Iterator[Server]:
    """A server that is up; skips the test, with the reason, where there is none."""
    binary = _binary("/usr/lib/postgresql/*/bin/postgres", package="postgresql")
    pytest.importorskip("psycopg", reason="the package psycopg is not installed")
    with _running(lambda *where: PostgresServer(binary.parent, *where), POSTGRES_USERS) as server:
        yield server


@contextlib.contextmanager
def mariadb() -> Iterator[Server]:
    """The same of MariaDB."""
    binary = _binary("/usr/sbin/mariadbd", package="mariadb-server")
    pytest.importorskip("pymysql", reason="the package PyMySQL is not installed")
    with _running(lambda *where: MariaDbServer(binary, *where), MARIADB_USERS) as server:
        yield server


@contextlib.contextmanager
def _running(
    make: Callable[[Path, str | None], Server], users: tuple[str, ...]
) -> Iterator[Server]:
    # Not in pytest's own folders, which nobody but root may enter.
    folder = Path(tempfile.mkdtemp(prefix="headrace-database-"))
    user = _user(users)
    if user is not None:
        shutil.chown(folder, user)
    try:
        server = make(folder, user)
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


def _binary(pattern: str, *, package: str) -> Path:
    found = sorted(Path("/").glob(pattern[1:]))
    if not found:
        pytest.skip(f"there is no {pattern}: install Debian's package {package}")
    return found[-1]


def _user(users: tuple[str, ...]) -> str | None:
    """None: the user of the test, who is not root."""
    if os.geteuid() != 0:
        return None
    known = {each.pw_name for each in pwd.getpwall()}
    for name in users:
        if name in known:
            return name
    pytest.skip(f"the database does not run as root, and there is no user {users}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[Server]:
    """One for the tests of a file."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[Server]:
    """One for the tests of a file."""
    with mariadb() as server:
        yield server


@pytest.fixture(params=DATABASES)
def database_url(request, tmp_path) -> str:
    """Of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/database"
    return str(request.getfixturevalue(SERVERS[request.param]).url())
