"""Brokers of this version and of an earlier release in one cluster, each a process of its own with
the code of its release."""

import configparser
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from integration_tests.support.cluster_support import (
    FEW_GROUPS,
    QUICK_FAILOVER,
    admin,
    partition_metadata,
    wait_until,
    wait_while_lacking,
    zookeeper_for,
)
from storage_engine.tools.local.free_ports import find_free_port

ROOT = Path(__file__).parents[2]
RELEASES = ROOT / "integration_tests" / "kept_data" / "releases.cfg"
HOST = "127.0.0.1"
STOP_S = 60.0
START_S = 120.0
SETTINGS = {
    **dict(FEW_GROUPS),
    **dict(QUICK_FAILOVER),
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}


PACKAGES = ("storage_engine", "headrace_console", "headrace_registry", "headrace_lake")
"""What runs of a version: its brokers, its registry and its lake."""

BEFORE = "HEAD^"
"""In place of a release: the commit before the present one."""


def check_out(release: str, folder: Path) -> Path:
    """The code of a release, or of a commit, from the history of this repository; the test is
    skipped where that is not there."""
    found = configparser.ConfigParser()
    found.read(RELEASES)
    commit = found[release]["commit"] if release in found else release
    there = _git("ls-tree", "--name-only", commit)
    if there is None:
        pytest.skip(f"the commit of release {release} is not in the history of this clone")
    packages = [each for each in PACKAGES if each in there.decode().split()]
    archive = _git("archive", "--format=tar", commit, *packages)
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder


def _git(*arguments: str) -> bytes | None:
    """What git prints; None where it can't."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    return None if done.returncode else done.stdout


@dataclass
class _Broker:
    process: "subprocess.Popen[bytes]"
    code: Path


class MixedCluster:
    """Use `mixed_cluster`. A broker is started with the code of any folder, and again with that of
    another, on its data."""

    def __init__(self, folder: Path, zookeeper_connect: str, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.zookeeper_connect = zookeeper_connect
        self._settings = settings
        self._ports: dict[int, int] = {}
        self._log_in_ports: dict[int, int] = {}
        self._brokers: dict[int, _Broker] = {}
        self.services = ROOT
        """The code of what serves beside brokers: a registry, a lake."""
        self.left_out: set[int] = set()
        """Brokers that no client is told of, since the cluster has no place for them."""

    @property
    def bootstrap_servers(self) -> str:
        told = sorted(self._brokers.keys() - self.left_out)
        return ",".join(map(self.address, told))

    def address(self, broker: int) -> str:
        return f"{HOST}:{self._ports[broker]}"

    def begin(self, broker: int, code: Path = ROOT) -> "subprocess.Popen[bytes]":
        """Start it; it does not serve yet."""
        if broker not in self._ports:
            taken = {*self._ports.values(), *self._log_in_ports.values()}
            self._ports[broker] = find_free_port(HOST, avoid=taken)
        file = self.folder / f"broker-{broker}.properties"
        given: Mapping[str, str] = {
            **SETTINGS,
            **self._settings,
            "broker.id": str(broker),
            "log.dirs": str(self.folder / f"data-{broker}"),
            "zookeeper.connect": self.zookeeper_connect,
            "listeners": self._listeners(broker),
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", "broker", str(file)]
        with self.log(broker).open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(code)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._brokers[broker] = _Broker(process, code)
        return process

    def _listeners(self, broker: int) -> str:
        """With a second one where the settings have a mechanism to log in by."""
        plain = f"PLAINTEXT://{self.address(broker)}"
        if "sasl.enabled.mechanisms" not in self._settings:
            return plain
        if broker not in self._log_in_ports:
            taken = {*self._ports.values(), *self._log_in_ports.values()}
            self._log_in_ports[broker] = find_free_port(HOST, avoid=taken)
        return f"{plain},SASL_PLAINTEXT://{HOST}:{self._log_in_ports[broker]}"

    @property
    def log_in_servers(self) -> str:
        return ",".join(f"{HOST}:{self._log_in_ports[each]}" for each in sorted(self._brokers))

    def code_of(self, broker: int) -> Path:
        return self._brokers[broker].code

    def start(self, *brokers: int, code: Path = ROOT) -> None:
        """Start these, and wait until each is known to clients."""
        for broker in brokers:
            self.begin(broker, code)
        wait_until(
            lambda: all(self.is_served_by(broker) for broker in brokers),
            f"brokers {brokers} serve",
            timeout_s=START_S,
        )

    def is_served_by(self, broker: int) -> bool:
        """Whether the broker, and those that run, know it."""
        from confluent_kafka import KafkaException

        process = self._brokers[broker].process
        assert process.poll() is None, self.last_words(broker)
        try:
            return broker in admin(self).list_topics(timeout=5).brokers
        except KafkaException:
            return False

    def stop(self, broker: int, *, signum: int = signal.SIGTERM) -> None:
        process = self._brokers.pop(broker).process
        process.send_signal(signum)
        process.wait(STOP_S)

    def signal(self, broker: int, signum: int) -> None:
        self._brokers[broker].process.send_signal(signum)

    def restart(self, broker: int, code: Path = ROOT) -> None:
        """Stop it in order, and start it with this code."""
        self.stop(broker)
        self.start(broker, code=code)

    def log(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}.log"

    def last_words(self, broker: int) -> str:
        lines = self.log(broker).read_text(errors="replace").splitlines()
        return lines[-1] if lines else ""

    def wait_whole(self) -> None:
        """Wait until all replicas of all topics are in sync, and a live broker leads each
        partition."""
        from confluent_kafka import KafkaException

        client = admin(self)

        def lacking() -> list[str]:
            try:
                topics = client.list_topics(timeout=5).topics
            except KafkaException as error:
                return [f"the brokers: {error}"]
            return [
                f"{topic}-{number}"
                for topic, found in topics.items()
                for number, partition in found.partitions.items()
                if len(partition.isrs) < len(partition.replicas)
                or partition.leader not in self._brokers
            ]

        wait_while_lacking(lacking, timeout_s=START_S)

    def wait_in_sync(self, topic: str, partitions: int = 1) -> None:
        """Wait until each broker has a replica in sync."""
        client = admin(self)

        def complete() -> bool:
            found = [partition_metadata(client, topic, number) for number in range(partitions)]
            return all(each is not None and len(each.isrs) == 3 for each in found)

        wait_until(complete, f"all replicas of {topic} are in sync", timeout_s=START_S)

    def controller(self) -> int:
        """The live controller."""
        from confluent_kafka import KafkaException

        client = admin(self)

        def found() -> int:
            try:
                return client.list_topics(timeout=5).controller_id
            except KafkaException:
                return -1

        def is_live() -> int:
            broker = found()
            return broker if broker in self._brokers else 0

        return wait_until(is_live, "a live controller")

    def close(self) -> None:
        """Kill what runs."""
        for broker in self._brokers.values():
            if broker.process.poll() is None:
                broker.process.kill()
            broker.process.wait(STOP_S)


@contextlib.contextmanager
def mixed_cluster(
    folder: Path, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[MixedCluster]:
    """No broker runs yet; all that do are gone after the block. `settings`: of all brokers, beside
    SETTINGS."""
    folder.mkdir(exist_ok=True)
    with zookeeper_for(folder / "zookeeper") as connect:
        cluster = MixedCluster(folder, connect, settings)
        try:
            yield cluster
        finally:
            cluster.close()
