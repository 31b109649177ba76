"""The brokers that are compared: an open one, one with listeners of several kinds and access rules,
and Apache Kafka's with the same listeners and rules.

All of their files are in the folder of the benchmark and gone with it, and so are their passwords.
"""

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.beside_kafka.jars import KAFKA, fetch_jars
from benchmarks.beside_kafka.kafka_cluster import running_kafka
from benchmarks.support.brokers import HOST, free_ports, running_brokers
from benchmarks.support.wire_load import MECHANISM, USER, Endpoint
from storage_engine.client import Admin
from storage_engine.tools.local.certificates import make_authority, make_certificate
from storage_engine.tools.local.cluster_file import CA_FILE

OPEN, LOGGED_IN, ENCRYPTED = "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"
"""The listeners, by the names of their protocols."""

_CERTIFICATE = "broker.pem"
_PASSWORD_BYTES = 18

_OF_ALL = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
    # Deleted topics leave their bytes to the next round.
    "log.segment.delete.delay.ms": "1000",
}


class Broker(NamedTuple):
    """A running broker."""

    name: str
    pid: int
    listeners: Mapping[str, Endpoint]
    """The endpoints of the listeners, by name."""

    @property
    def admin(self) -> Admin:
        """An admin client on the open listener, whose clients are super users."""
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
        """Return the endpoints for clients at these ports, by the listeners' names."""
        ca_file = self.folder / CA_FILE
        return {
            name: Endpoint(
                port,
                ca_file if name == ENCRYPTED else None,
                None if name == OPEN else self.password,
            )
            for name, port in ports.items()
        }

    def settings(self) -> dict[str, str]:
        """Return the settings of a secured broker, by names that Headrace and Kafka share."""
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
    """Run a broker of Headrace within the block, with a ZooKeeper of its own."""
    names = (OPEN, LOGGED_IN, ENCRYPTED) if is_secured else (OPEN,)
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    settings = {
        "listeners": ",".join(f"{each}://{HOST}:{port}" for each, port in ports.items()),
        **_OF_ALL,
        **(place.settings() if is_secured else {}),
    }
    what, servers = f"the broker '{name}'", f"{HOST}:{ports[OPEN]}"
    with running_brokers(place.folder / name, what, servers, [settings]) as (pid,):
        yield Broker(name, pid, place.endpoints(ports))


@contextlib.contextmanager
def kafka(place: Place, cache: Path) -> Iterator[Broker]:
    """Run Apache Kafka within the block, with the listeners and settings of `headrace`."""
    cache.mkdir(parents=True, exist_ok=True)
    jars = fetch_jars(cache, KAFKA)
    more = dict(zip((LOGGED_IN, ENCRYPTED), free_ports(2), strict=True))
    settings = [*_OF_ALL.items(), *place.settings().items()]
    folder = place.folder / "kafka"
    with running_kafka(folder, jars, settings, 1, more_listeners=more) as cluster:
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        (pid,) = cluster.pids
        yield Broker("kafka", pid, place.endpoints({OPEN: port, **more}))
