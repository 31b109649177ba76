"""The addresses of a cluster's live brokers, as registered in ZooKeeper.

Each call opens a session of its own: a client needs it only when all of its addresses fail, which
is rare. Nodes below /brokers/ids that can't be decoded are no brokers, and are logged. Source:
R-CLI1.
"""

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from storage_engine.core.errors import DeadlineExceededError
from storage_engine.core.settings.zookeeper_settings import ENABLE
from storage_engine.zookeeper.access import ANYBODY, ZooKeeperAccess
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.kazoo_driver import EncryptingHandler
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import PLAIN_PROTOCOL, BrokerIdZNode

MOST_BROKERS = 1000
"""The most brokers that are read: one that answers is enough."""

log = logging.getLogger(__name__)

Value = TypeVar("Value")


def live_addresses(
    connect: ConnectString,
    timeout_ms: int,
    protocol: str = PLAIN_PROTOCOL,
    access: ZooKeeperAccess = ANYBODY,
) -> list[tuple[str, int]]:
    """Return host and port of each broker that is registered, those of its listener with that
    security protocol; empty where none is. DeadlineExceededError of one line when ZooKeeper does
    not answer."""
    return [
        address for _, address in _read(connect, timeout_ms, access, partial(_address, protocol))
    ]


def live_hosts(
    connect: ConnectString, timeout_ms: int, access: ZooKeeperAccess = ANYBODY
) -> dict[int, str]:
    """Return the host of each broker that is registered, by its id. DeadlineExceededError of one
    line when ZooKeeper does not answer."""
    return dict(_read(connect, timeout_ms, access, _host))


def _read(
    connect: ConnectString,
    timeout_ms: int,
    access: ZooKeeperAccess,
    value_of: Callable[[BrokerIdZNode], Value],
) -> list[tuple[int, Value]]:
    handler = EncryptingHandler(access.tls)
    client = KazooClient(
        hosts=str(connect), timeout=timeout_ms / 1000, handler=handler, **access.client_options()
    )
    try:
        client.start(timeout=timeout_ms / 1000)
        return _values(client, value_of)
    except (KazooException, KazooTimeoutError) as error:
        reason = handler.tls_problem or str(error) or type(error).__name__
        hint = "" if access.tls else f"; one that speaks TLS alone needs {ENABLE}"
        raise DeadlineExceededError(
            f"ZooKeeper at {connect} does not answer: {reason}{hint}"
        ) from None
    finally:
        with contextlib.suppress(KazooException, KazooTimeoutError):
            client.stop()
        client.close()


def _values(
    client: KazooClient, value_of: Callable[[BrokerIdZNode], Value]
) -> list[tuple[int, Value]]:
    try:
        names = client.get_children(BrokerIdZNode.PARENT)
    except NoNodeError:
        return []
    found: list[tuple[int, Value]] = []
    for name in sorted(names)[:MOST_BROKERS]:
        # The broker is gone since.
        with contextlib.suppress(NoNodeError):
            data, _ = client.get(f"{BrokerIdZNode.PARENT}/{name}")
            try:
                broker = _broker(name, data)
                found.append((broker.broker_id, value_of(broker)))
            except ZnodeFormatError as problem:
                log.warning("ignored what is no broker: %s", problem)
    return found


def _broker(name: str, data: bytes) -> BrokerIdZNode:
    if not (name.isascii() and name.isdigit() and len(name) <= 10):
        path = f"{BrokerIdZNode.PARENT}/{name!r}"
        raise ZnodeFormatError(f"znode {path}: its name is no broker id")
    return BrokerIdZNode.decode(int(name), data)


def _host(broker: BrokerIdZNode) -> str:
    if broker.host is not None:
        return broker.host
    return next((urlsplit(each).hostname or "" for each in broker.endpoints), "")


def _address(protocol: str, broker: BrokerIdZNode) -> tuple[str, int]:
    path = f"{BrokerIdZNode.PARENT}/'{broker.broker_id}'"
    address = broker.address_for(protocol)
    if address is None:
        raise ZnodeFormatError(f"znode {path}: the broker has no {protocol} listener")
    host, port = address
    if not host or not 0 < port < 65536:
        raise ZnodeFormatError(f"znode {path}: {host!r} port {port} is nowhere to connect to")
    return address
