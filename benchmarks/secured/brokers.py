"""The brokers that are compared: an open one, one with listeners of several kinds and access rules,
and Apache Kafka's with the same listeners and rules.

All of their files are in the folder of the benchmark and gone with it, and so are their passwords.
"""

import contextlib
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.beside_kafka.environment import ROOT
from benchmarks.beside_kafka.jars import KAFKA, fetch_jars
from benchmarks.beside_kafka.kafka_cluster import running_kafka
from benchmarks.beside_kafka.tethered import check_runs, tethered
from benchmarks.secured.load import MECHANISM, USER, Endpoint
from storage_engine.client import Admin
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.certificates import make_authority, make_certificate
from storage_engine.tools.local.cluster_security import CA_FILE
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.tools.local.secret_files import write_secret
from storage_engine.zookeeper.embedded import start_embedded

HOST = "127.0.0.1"
OPEN, LOGGED_IN, ENCRYPTED = "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"
"""The listeners, by the names of their protocols."""

_CERTIFICATE = "broker.pem"
_PASSWORD_BYTES = 18
_START_S = 60.0
_POLL_S = 0.05

_OF_ALL = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
    # Deleted topics leave their bytes to the next round.
    "log.segment.delete.delay.ms": "1000",
}


class Broker(NamedTuple):
    """One that runs."""

    name: str
    pid: int
    listeners: Mapping[str, Endpoint]
    """By their names."""

    @property
    def admin(self) -> Admin:
        """By the open listener, whose clients are super users."""
        return Admin({"bootstrap.servers": f"{HOST}:{self.listeners[OPEN].port}"})


class Place(NamedTuple):
    """The folder of a run, with the certificates and the password that all sides share."""

    folder: Path
    password: str

    @classmethod
    def made(cls, folder: Path) -> "Place":
        make_authority(folder)
        make_certificate(folder, _CERTIFICATE, HOST)
        return cls(folder, secrets.token_urlsafe(_PASSWORD_BYTES))

    def __repr__(self) -> str:
        return f"Place({self.folder})"

    def endpoints(self, ports: Mapping[str, int]) -> dict[str, Endpoint]:
        """How clients get in at these ports, by the listeners' names."""
        return {
            name: Endpoint(
                port,
                self.folder / CA_FILE if name == ENCRYPTED else None,
                None if name == OPEN else self.password,
            )
            for name, port in ports.items()
        }

    def settings(self) -> dict[str, str]:
        """Of a secured broker, in the names that both kinds have."""
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        log_in = f'{module} required user_{USER}="{self.password}";'
        prefix = f"{MECHANISM.lower()}.sasl.jaas.config"
        return {
            "sasl.enabled.mechanisms": MECHANISM,
            **{f"listener.name.{each.lower()}.{prefix}": log_in for each in (LOGGED_IN, ENCRYPTED)},
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / _CERTIFICATE),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
        }


@contextlib.contextmanager
def headrace(place: Place, name: str, *, is_secured: bool) -> Iterator[Broker]:
    """A broker of ours with a ZooKeeper of its own; both are gone after the block."""
    folder = place.folder / name
    folder.mkdir()
    ports = _free_ports((OPEN, LOGGED_IN, ENCRYPTED) if is_secured else (OPEN,))
    zookeeper = start_embedded(folder / "zookeeper")
    try:
        settings = {
            "broker.id": "1",
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": zookeeper.connect,
            "listeners": ",".join(f"{each}://{HOST}:{port}" for each, port in ports.items()),
            **_OF_ALL,
            **(place.settings() if is_secured else {}),
        }
        file, log = folder / "server.properties", folder / "broker.log"
        write_secret(file, "".join(f"{key}={text}\n" for key, text in settings.items()).encode())
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", "broker", str(file)]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        with tethered(command, log=log, folder=folder, environment=environment) as process:
            broker = Broker(name, process.pid, place.endpoints(ports))
            _wait_for(broker, lambda: check_runs(process, f"the broker '{name}'", log))
            yield broker
    finally:
        zookeeper.stop()


@contextlib.contextmanager
def kafka(place: Place, cache: Path) -> Iterator[Broker]:
    """Apache Kafka with the same listeners and settings."""
    cache.mkdir(parents=True, exist_ok=True)
    jars = fetch_jars(cache, KAFKA)
    more = _free_ports((LOGGED_IN, ENCRYPTED))
    settings = [*_OF_ALL.items(), *place.settings().items()]
    folder = place.folder / "kafka"
    with running_kafka(folder, jars, settings, 1, more_listeners=more) as cluster:
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        (pid,) = cluster.broker_pids
        yield Broker("kafka", pid, place.endpoints({OPEN: port, **more}))


def _free_ports(names: Sequence[str]) -> dict[str, int]:
    ports: dict[str, int] = {}
    for name in names:
        ports[name] = find_free_port(HOST, avoid=list(ports.values()))
    return ports


def _wait_for(broker: Broker, check: Callable[[], None]) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        check()
        try:
            with broker.admin as admin:
                admin.list_topics()
                return
        except HeadraceError:
            if time.monotonic() > deadline:
                raise CommandError(
                    f"the broker '{broker.name}' is not up after {_START_S:.0f} s"
                ) from None
        time.sleep(_POLL_S)
