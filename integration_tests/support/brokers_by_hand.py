"""A ZooKeeper and brokers with whatever settings a test writes: what `headrace up` can't decide,
such as several listeners."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from integration_tests.forks.forked import popen
from integration_tests.support.cluster_support import (
    FEW_GROUPS,
    QUICK_FAILOVER,
    is_known,
    wait_until,
    zookeeper_for,
)
from storage_engine.tools.local.free_ports import find_free_port

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
START_S = 60.0

Settings = Mapping[str, str]


class BrokersByHand:
    """Brokers of a cluster. Each has a port for each name of a listener."""

    def __init__(self, folder: Path, zookeeper_connect: str, listeners: list[str]) -> None:
        self.folder = folder
        self.zookeeper_connect = zookeeper_connect
        self._listeners = listeners
        self._ports: dict[tuple[int, str], int] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.program = "storage_engine.tools.cli"
        """The module that is run; a test of tests has one that does something wrong."""
        self.within: tuple[str, ...] = ()
        """A command that runs what follows, and ends it when it is killed."""

    def port(self, broker_id: int, listener: str) -> int:
        key = broker_id, listener
        if key not in self._ports:
            self._ports[key] = find_free_port(HOST, avoid=set(self._ports.values()))
        return self._ports[key]

    def bootstrap(self, listener: str) -> str:
        """The addresses of all brokers at that listener."""
        return ",".join(f"{HOST}:{self.port(each, listener)}" for each in self._processes)

    def start(self, broker_id: int, settings: Settings, *, is_waited_for: bool = True) -> None:
        """Starts a broker; waits until it has joined the cluster."""
        folder = self.folder / f"broker-{broker_id}"
        folder.mkdir(exist_ok=True)
        every = ",".join(
            f"{name}://{HOST}:{self.port(broker_id, name)}" for name in self._listeners
        )
        given = {
            "broker.id": str(broker_id),
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": self.zookeeper_connect,
            "listeners": every,
            **dict(FEW_GROUPS),
            **dict(QUICK_FAILOVER),
            **settings,
        }
        file = folder / "server.properties"
        file.write_text("".join(f"{key}={_escaped(text)}\n" for key, text in given.items()))
        file.chmod(0o600)
        command = [*self.within, sys.executable, "-P", "-m", self.program, "broker", str(file)]
        with (folder / "output").open("ab") as output:
            self._processes[broker_id] = popen(
                [*command, "--log-file", str(folder / "broker.log")],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=output,
            )
        if is_waited_for:
            self.wait_until_joined(broker_id)

    def wait_until_joined(self, broker_id: int) -> None:
        wait_until(
            lambda: self._has_joined(broker_id),
            f"broker {broker_id} joins; its log: {self.log(broker_id)[-2000:]}",
            timeout_s=START_S,
        )

    def stop(self, broker_id: int, *, signum: int = signal.SIGTERM) -> None:
        process = self._processes[broker_id]
        process.send_signal(signum)
        process.wait(START_S)

    def pid(self, broker_id: int) -> int:
        return self._processes[broker_id].pid

    def close(self) -> None:
        """Kills them all."""
        for broker_id, process in self._processes.items():
            if process.poll() is None:
                self.stop(broker_id, signum=signal.SIGKILL)

    def log(self, broker_id: int) -> str:
        """What the broker has written so far, wherever."""
        folder = self.folder / f"broker-{broker_id}"
        files = [folder / "broker.log", folder / "output"]
        return "\n".join(each.read_text(errors="replace") for each in files if each.exists())

    def _has_joined(self, broker_id: int) -> bool:
        assert self._processes[broker_id].poll() is None, self.log(broker_id)
        has_registered = f"registered broker={broker_id} " in self.log(broker_id)
        return has_registered and is_known(broker_id, map(self.log, self._processes))


@contextlib.contextmanager
def brokers_by_hand(folder: Path, listeners: list[str]) -> Iterator[BrokersByHand]:
    """An empty cluster that is gone after the block."""
    with zookeeper_for(folder / "zookeeper") as connect:
        brokers = BrokersByHand(folder, connect, listeners)
        try:
            yield brokers
        finally:
            brokers.close()


def in_threads(*works: Callable[[], None]) -> None:
    """All at once; raises the first error."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\")
