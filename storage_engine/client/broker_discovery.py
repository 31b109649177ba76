"""Finds brokers for a client, from the list that it was given or from ZooKeeper.

It is used only when none of the known brokers answers. Source: R-CLI1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from storage_engine.client.addresses import Address, parse_addresses
from storage_engine.core.errors import HeadraceError
from storage_engine.core.settings.zookeeper_settings import ZooKeeperTls
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.zookeeper.connect_string import ConnectString

if TYPE_CHECKING:
    from storage_engine.zookeeper.access import ZooKeeperAccess

LOOK_AGAIN_MS = 1_000
"""The least time between two reads of ZooKeeper: a broker that has just gone stays registered until
its session ends."""


class BrokerSource(Protocol):
    """A source of broker addresses."""

    remedy: str
    """The advice to a user when none of the addresses answers."""

    def addresses(self, deadline: Deadline) -> Sequence[Address]:
        """The present addresses. Raises HeadraceError when they can't be read."""
        ...


class GivenBrokers:
    """The brokers in `bootstrap.servers`."""

    remedy = "check bootstrap.servers, and that the brokers are up"

    def __init__(self, bootstrap_servers: str) -> None:
        """ConfigError for a text that is no list of addresses."""
        self._addresses = parse_addresses(bootstrap_servers)

    def addresses(self, deadline: Deadline) -> Sequence[Address]:
        return self._addresses


class ZooKeeperBrokers:
    """The brokers that are registered in the ZooKeeper of `zookeeper.connect` now."""

    remedy = "check zookeeper.connect, and that the brokers are up"

    def __init__(
        self,
        connect: ConnectString,
        *,
        timeout_ms: int,
        protocol: str = "PLAINTEXT",
        tls: ZooKeeperTls | None = None,
    ) -> None:
        """`timeout_ms`: for one read of ZooKeeper. `protocol`: the client's `security.protocol`,
        which selects the brokers' listener. `tls`: towards ZooKeeper; ConfigError for a file of it
        that can't be used."""
        self._protocol = protocol
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._known: Sequence[Address] = ()
        self._due_at_ms = 0
        self._access = None if tls is None else encrypted_access(tls)

    def addresses(self, deadline: Deadline) -> Sequence[Address]:
        if monotonic_ms() >= self._due_at_ms:
            # Imported now: they bring kazoo.
            from storage_engine.zookeeper.access import ANYBODY
            from storage_engine.zookeeper.live_brokers import live_addresses

            left_ms = deadline.no_later_than(self._timeout_ms).left_ms
            access = self._access or ANYBODY
            self._known = live_addresses(self._connect, max(1, left_ms), self._protocol, access)
            self._due_at_ms = monotonic_ms() + LOOK_AGAIN_MS
        if not self._known:
            raise HeadraceError(
                f"no broker is registered in ZooKeeper at {self._connect} with a listener for "
                f"{self._protocol}"
            )
        return self._known


def encrypted_access(tls: ZooKeeperTls) -> "ZooKeeperAccess":
    """Return the access to ZooKeeper by TLS; ConfigError for a file that can't be used."""
    # Imported now: they bring kazoo and the libraries of TLS.
    from storage_engine.net.tls.contexts import zookeeper_context
    from storage_engine.zookeeper.access import ZooKeeperAccess

    return ZooKeeperAccess(tls=zookeeper_context(tls))
