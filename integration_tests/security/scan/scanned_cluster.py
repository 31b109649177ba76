"""A broker with an authorizer, users with the rights that a scan needs, and all that the cluster
consists of, to see whether anything has changed."""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from integration_tests.security.scan.planted import Planted, built, plant
from integration_tests.security.scan.probe import Probe
from integration_tests.security.secured_cluster import properties_file
from integration_tests.support.brokers_by_hand import HOST, BrokersByHand, brokers_by_hand
from integration_tests.support.cluster_support import wait_until
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.tests.broker.guards.api_cases import Right

OPEN, CLOSED = "OPEN", "CLOSED"
ADMIN, NOBODY_SPECIAL = "admin", "carol"
EARLIEST = -2

State = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScannedCluster:
    """The broker, and the client's view of it."""

    brokers: BrokersByHand
    zookeeper: KazooClient
    admin: Probe
    planted: Planted

    def address(self, listener: str) -> tuple[str, int]:
        return HOST, self.brokers.port(1, listener)

    def logged_in(self, user: str) -> Probe:
        probe = Probe(self.address(CLOSED))
        probe.log_in(user, password_of(user))
        return probe

    def state(self) -> State:
        """All that a request may change: nodes in ZooKeeper, bytes of logs, and what brokers have
        in memory alone."""
        return {**self._nodes("/"), **self._logs(), **self._answers()}

    def _nodes(self, path: str) -> dict[str, Any]:
        if path in ("/zookeeper", "/config/changes", "/kafka-acl-changes"):
            return {}
        try:
            data, stat = self.zookeeper.get(path)
            children = self.zookeeper.get_children(path)
        except NoNodeError:
            # A request for a deletion is gone when the topic is.
            return {}
        found = {path: (data, stat.version)}
        for child in children:
            found |= self._nodes(f"{path.rstrip('/')}/{child}")
        return found

    def _logs(self) -> dict[str, Any]:
        folder = self.brokers.folder / "broker-1" / "data"
        found = {}
        for path in folder.rglob("*.log"):
            with contextlib.suppress(FileNotFoundError):
                found[str(path)] = path.stat().st_size, hashlib.sha256(path.read_bytes()).digest()
        return found

    def _answers(self) -> dict[str, Any]:
        first = ListOffsetsRequest([ListOffsetsPartition("t", 0, EARLIEST)])
        questions = {
            "metadata": (3, 12, MetadataRequest(topics=None)),
            "log start": (2, 7, first),
            "members": (15, 5, built(15, groups=["live", "joined", "g", "gone"])),
            "transactions": (66, 0, built(66, state_filters=[], producer_id_filters=[])),
        }
        found = {}
        for name, question in questions.items():
            answer = self.admin.ask(*question)
            assert answer is not None, f"no answer about {name}"
            found[name] = answer.raw[4:]
        return found


def password_of(user: str) -> str:
    return f"{user}-password"


@contextlib.contextmanager
def scanned_cluster(
    folder: Path, rights: Mapping[str, Iterable[Right]], *, program: str | None = None
) -> Iterator[ScannedCluster]:
    """`rights`: of each user, beside `admin`, who may do everything, and `carol`, who has none.
    `program`: another one than the broker."""
    users = folder / "users.properties"
    names = [ADMIN, NOBODY_SPECIAL, *rights]
    properties_file(users, {name: password_of(name) for name in names})
    with contextlib.ExitStack() as stack:
        brokers = stack.enter_context(brokers_by_hand(folder, [OPEN, CLOSED]))
        if program is not None:
            brokers.program = program
        brokers.start(1, _settings(users))
        admin = stack.enter_context(Probe((HOST, brokers.port(1, CLOSED))))
        admin.log_in(ADMIN, password_of(ADMIN))
        zookeeper = KazooClient(brokers.zookeeper_connect)
        zookeeper.start()
        stack.callback(zookeeper.close)
        stack.callback(zookeeper.stop)
        planted = plant(admin, zookeeper)
        _allow(admin, rights)
        yield ScannedCluster(brokers, zookeeper, admin, planted)


def _allow(admin: Probe, rights: Mapping[str, Iterable[Right]]) -> None:
    rules = [
        {
            "resource_type": int(kind),
            "resource_name": name,
            "resource_pattern_type": 3,
            "principal": f"User:{user}",
            "host": "*",
            "operation": int(operation),
            "permission_type": 3,
        }
        for user, some in rights.items()
        for operation, kind, name in some
    ]
    answer = admin.ask(30, 2, built(30, creations=rules))
    assert answer is not None
    assert not any(row.error_code for row in answer.message.results), answer.message


def _settings(users: Path) -> dict[str, str]:
    log_in = f'PlainLoginModule required username="{ADMIN}" password="{password_of(ADMIN)}";'
    return {
        "listener.security.protocol.map": f"{OPEN}:PLAINTEXT,{CLOSED}:SASL_PLAINTEXT",
        "inter.broker.listener.name": CLOSED,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.plain.users.file": str(users),
        "listener.name.closed.plain.sasl.jaas.config": log_in,
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": "AclAuthorizer",
        "super.users": f"User:{ADMIN}",
        "default.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def wait_for_state(cluster: ScannedCluster, before: State) -> set[str]:
    """The names of what has changed, once there is something; all that a request changes is there
    when it is answered, but for what the broker does afterwards."""
    changed: set[str] = set()

    def has_changed() -> bool:
        changed.update(differences(before, cluster.state()))
        return bool(changed)

    with contextlib.suppress(AssertionError, TimeoutError):
        wait_until(has_changed, "something changes", timeout_s=20)
    return changed


def differences(before: State, after: State) -> set[str]:
    names = before.keys() | after.keys()
    return {name for name in names if before.get(name) != after.get(name)}
