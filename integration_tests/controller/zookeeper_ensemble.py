"""A ZooKeeper ensemble of three processes, each of which can be killed and started again."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration_tests.support.cluster_support import wait_until
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.zookeeper.embedded import class_path, find_java, is_serving, jvm_options

HOST = "127.0.0.1"
_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class Ensemble:
    """Servers 1 to 3."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        avoid: set[int] = set()
        for _ in range(9):
            avoid.add(find_free_port(HOST, avoid=avoid))
        ports = sorted(avoid)
        self.ids = (1, 2, 3)
        self._client_ports = dict(zip(self.ids, ports[:3], strict=True))
        self._peers = "\n".join(
            f"server.{i}={HOST}:{peer}:{election}"
            for i, peer, election in zip(self.ids, ports[3:6], ports[6:], strict=True)
        )
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def connect(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._client_ports.values())

    def start(self, server: int) -> None:
        folder = self._directory / f"zookeeper-{server}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "myid").write_text(f"{server}\n")
        config = folder / "zoo.cfg"
        config.write_text(
            "tickTime=500\ninitLimit=20\nsyncLimit=10\nadmin.enableServer=false\n"
            "maxClientCnxns=0\n4lw.commands.whitelist=srvr\n"
            f"dataDir={folder}\nclientPort={self._client_ports[server]}\n"
            f"clientPortAddress={HOST}\n{self._peers}\n"
        )
        options = jvm_options(folder, unsafe_no_fsync=True)
        with (folder / "zookeeper.log").open("ab") as log:
            self._processes[server] = subprocess.Popen(
                [find_java(), *options, "-cp", class_path(), _MAIN_CLASS, config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, server: int) -> None:
        process = self._processes.pop(server)
        process.kill()
        process.wait(60)

    def wait_until_serving(self) -> None:
        for server in self._processes:
            wait_until(
                lambda server=server: is_serving(HOST, self._client_ports[server]),
                f"ZooKeeper server {server} serves",
            )

    def close(self) -> None:
        for server in list(self._processes):
            self.kill(server)


@contextmanager
def running_ensemble(directory: Path) -> Iterator[Ensemble]:
    """Three servers that are gone after the block, whatever happens in it."""
    ensemble = Ensemble(directory)
    try:
        for server in ensemble.ids:
            ensemble.start(server)
        ensemble.wait_until_serving()
        yield ensemble
    finally:
        ensemble.close()
