"""Brokers with settings that a test writes itself: listeners, protocols, certificates. Each is a
process of its own.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from integration_tests.forks.forked import popen
from integration_tests.support.cluster_support import is_known, wait_until, zookeeper_for
from storage_engine.tools.local.free_ports import find_free_port

HOST = "127.0.0.1"
_COMMAND = [sys.executable, "-m", "storage_engine.tools.cli", "broker"]
_USUAL = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "3",
    "zookeeper.session.timeout.ms": "4000",
    "group.initial.rebalance.delay.ms": "0",
}
STOP_S = 60.0


class ConfiguredBrokers:
    """Use `configured_brokers`."""

    def __init__(self, folder: Path, zookeeper_connect: str) -> None:
        self.folder = folder
        self.zookeeper_connect = zookeeper_connect
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports: set[int] = set()

    def free_port(self) -> int:
        port = find_free_port(HOST, avoid=self._ports)
        self._ports.add(port)
        return port

    def log_of(self, broker: int) -> str:
        path = self.folder / f"broker-{broker}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def start(self, broker: int, settings: Mapping[str, str]) -> None:
        """Start it with these settings, and wait until it serves."""
        served = self.log_of(broker).count(f"registered broker={broker} ")
        self._spawn(broker, settings)

        def is_registered() -> bool:
            code = self._processes[broker].poll()
            assert code is None, f"broker {broker} ended: {self.log_of(broker)[-2000:]}"
            has_registered = self.log_of(broker).count(f"registered broker={broker} ") > served
            return has_registered and is_known(broker, map(self.log_of, self._processes))

        wait_until(is_registered, f"broker {broker} is registered")

    def refusal(self, broker: int, settings: Mapping[str, str]) -> str:
        """What a broker says that can't start with these settings."""
        process = self._spawn(broker, settings)
        assert process.wait(STOP_S) != 0
        del self._processes[broker]
        return self.log_of(broker)

    def stop(self, broker: int) -> None:
        """A controlled shutdown."""
        process = self._processes.pop(broker)
        process.terminate()
        process.wait(STOP_S)

    def _spawn(self, broker: int, settings: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        file = self.folder / f"broker-{broker}.properties"
        given = {
            **_USUAL,
            "broker.id": str(broker),
            "log.dirs": str(self.folder / f"logs-{broker}"),
            "zookeeper.connect": self.zookeeper_connect,
            **settings,
        }
        lines = (f"{key}={value}" for key, value in given.items())
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with (self.folder / f"broker-{broker}.log").open("ab") as log:
            process = popen([*_COMMAND, str(file)], stderr=log, stdout=log)
        self._processes[broker] = process
        return process

    def close(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            process.kill()
            process.wait()


@contextlib.contextmanager
def configured_brokers(folder: Path) -> Iterator[ConfiguredBrokers]:
    """No broker runs yet."""
    with zookeeper_for(folder / "zookeeper") as connect:
        brokers = ConfiguredBrokers(folder, connect)
        try:
            yield brokers
        finally:
            brokers.close()
