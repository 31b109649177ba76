"""A ZooKeeper ensemble of three processes (`headrace zookeeper`), each of which can be killed and
started again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration_tests.support.cluster_support import HEALED_S, wait_until
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.zookeeper.server.config import ServerTls
from storage_engine.zookeeper.server.program import server_report

HOST = "127.0.0.1"
ROOT = Path(__file__).parents[2]
STOP_S = 60


class Ensemble:
    """Servers 1 to 3."""

    def __init__(self, directory: Path, *, tls: ServerTls | None = None) -> None:
        self.directory = directory
        self._tls = tls
        self._context = None if tls is None else tls.context()
        avoid: set[int] = set()
        for _ in range(9):
            avoid.add(find_free_port(HOST, avoid=avoid))
        ports = sorted(avoid)
        self.ids = (1, 2, 3)
        self.client_ports = dict(zip(self.ids, ports[:3], strict=True))
        self.members = ",".join(
            f"{i}={HOST}:{peer}:{election}"
            for i, peer, election in zip(self.ids, ports[3:6], ports[6:], strict=True)
        )
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def connect(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.client_ports.values())

    def arguments(self, server: int) -> list[str]:
        """The command line of a server."""
        tls = self._tls
        return [
            *("--dir", str(self.directory / f"zookeeper-{server}"), "--heap", "64m"),
            *("--id", str(server), "--ensemble", self.members),
            *("--client-port", str(self.client_ports[server]), "--listen", HOST),
            # Nothing here outlives a power loss.
            *("--set", "forceSync=no"),
            *(
                ()
                if tls is None
                else ("--tls-keystore", str(tls.keystore), "--tls-truststore", str(tls.truststore))
            ),
        ]

    def start(self, server: int) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", "zookeeper"]
        with self.output(server).open("ab") as output:
            self._processes[server] = subprocess.Popen(
                [*command, *self.arguments(server)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    def output(self, server: int) -> Path:
        """What the server writes, mostly to stderr."""
        return self.directory / f"zookeeper-{server}.err"

    def kill(self, server: int) -> None:
        process = self._processes.pop(server)
        process.kill()
        process.wait(STOP_S)

    def terminate(self, server: int) -> int:
        """SIGTERM; the status with which the server ends."""
        process = self._processes.pop(server)
        process.terminate()
        return process.wait(STOP_S)

    def mode(self, server: int) -> str:
        """`leader` or `follower`; empty where it serves nobody."""
        report = server_report(HOST, self.client_ports[server], self._context).decode()
        modes = [line for line in report.splitlines() if line.startswith("Mode: ")]
        return modes[0].removeprefix("Mode: ") if modes else ""

    def leader(self) -> int:
        """The server that leads, once one does."""
        return wait_until(
            lambda: next((each for each in self._processes if self.mode(each) == "leader"), 0),
            "a ZooKeeper server leads",
            timeout_s=HEALED_S,
        )

    def wait_until_serving(self) -> None:
        for server in self._processes:
            wait_until(
                lambda server=server: self.mode(server),
                f"ZooKeeper server {server} serves; it wrote {self.output(server)}",
                timeout_s=HEALED_S,
            )

    def close(self) -> None:
        for server in list(self._processes):
            self.kill(server)


@contextmanager
def running_ensemble(directory: Path, *, tls: ServerTls | None = None) -> Iterator[Ensemble]:
    """Three servers that are gone after the block, whatever happens in it."""
    ensemble = Ensemble(directory, tls=tls)
    try:
        for server in ensemble.ids:
            ensemble.start(server)
        ensemble.wait_until_serving()
        yield ensemble
    finally:
        ensemble.close()
