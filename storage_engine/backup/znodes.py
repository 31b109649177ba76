"""The part of a cluster that ZooKeeper holds, in a backup: nodes with their content, as JSON.

What is kept: topics, settings, users, quotas, access rules, the levels of features, the producer
ids that were given out, and the offsets of the groups in ZooKeeper. What is not: what only brokers
that run have (sessions, the controller, states of partitions, requests to the controller), and
nodes of a session.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from storage_engine.backup.errors import BackupError, DamagedError
from storage_engine.core.security.scram_credential import ScramMechanism
from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.kazoo_driver import EncryptingHandler
from storage_engine.zookeeper.znodes.cluster_znodes import (
    ConfigZNode,
    FeatureZNode,
    ProducerIdBlockZNode,
)
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

DECOY_KEY = "/scram_decoy_key"
_TREES = ("/config", "/kafka-acl", "/kafka-acl-extended", "/consumers")
_NODES = (FeatureZNode.PATH, ProducerIdBlockZNode.PATH, DECOY_KEY)
_LEFT_OUT = ("/config/changes",)
_SECRET_WORDS = ("password", "jaas", "secret")

CONNECT_TIMEOUT_S = 10.0

Nodes = dict[str, bytes]
"""Path -> content."""


@contextmanager
def connected(hosts: str, access: ZooKeeperAccess) -> Iterator[KazooClient]:
    """BackupError has the reason of a failure, also of one within the block."""
    handler = EncryptingHandler(access.tls)
    client = KazooClient(hosts=hosts, handler=handler, **access.client_options())
    try:
        try:
            client.start(timeout=CONNECT_TIMEOUT_S)
        except KazooTimeoutError:
            problem = handler.tls_problem or f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
            raise BackupError(f"no ZooKeeper at {hosts}: {problem}") from None
        yield client
    except KazooException as error:
        raise BackupError(
            f"ZooKeeper at {hosts} refused ({type(error).__name__}): check that it runs, and that "
            "the credentials are those of the brokers"
        ) from None
    finally:
        client.stop()
        client.close()


def read_nodes(client: KazooClient, *, with_secrets: bool) -> Nodes:
    """Read all that a backup keeps."""
    nodes: Nodes = {}
    for path in _NODES:
        _read(client, path, nodes, deep=False)
    for path in _TREES:
        _read(client, path, nodes, deep=True)
    _read_topics(client, nodes)
    return nodes if with_secrets else without_secrets(nodes)


def _read(client: KazooClient, path: str, nodes: Nodes, *, deep: bool) -> None:
    if path in _LEFT_OUT:
        return
    try:
        data, stat = client.get(path)
        children = client.get_children(path) if deep else []
    except NoNodeError:
        return
    if stat.ephemeralOwner:
        return
    nodes[path] = data
    for child in sorted(children):
        _read(client, f"{path}/{child}", nodes, deep=True)


def _read_topics(client: KazooClient, nodes: Nodes) -> None:
    try:
        topics = client.get_children(TopicZNode.PARENT)
    except NoNodeError:
        return
    for topic in sorted(topics):
        _read(client, TopicZNode.path(topic), nodes, deep=False)


def without_secrets(nodes: Mapping[str, bytes]) -> Nodes:
    """Leave out credentials of users and passwords in settings; quotas and other settings stay."""
    kept: Nodes = {}
    for path, data in nodes.items():
        if path == DECOY_KEY:
            continue
        if not path.startswith("/config/") or not data:
            kept[path] = data
            continue
        config = ConfigZNode.decode(path, data).config
        left = {key: value for key, value in config.items() if not _is_secret(key)}
        kept[path] = data if left == config else ConfigZNode(config=left).encode()
    return kept


def _is_secret(key: str) -> bool:
    if any(key == mechanism.value for mechanism in ScramMechanism):
        return True
    return any(word in key.lower() for word in _SECRET_WORDS)


def encode_nodes(nodes: Mapping[str, bytes]) -> bytes:
    document = {path: b64encode(data).decode() for path, data in sorted(nodes.items())}
    return json.dumps(document, indent=0).encode()


def decode_nodes(name: str, data: bytes) -> Nodes:
    try:
        document = json.loads(data)
        return {str(path): b64decode(text, validate=True) for path, text in document.items()}
    except (ValueError, TypeError, AttributeError):
        raise DamagedError(f"{name} is damaged: it does not list nodes of ZooKeeper") from None
