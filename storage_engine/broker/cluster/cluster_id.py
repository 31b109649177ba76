"""Creates the cluster's id, or reads the one that another broker created, and creates the
persistent parents of all other znodes.

The first broker that creates /cluster/id decides the id; it never changes. Source: R-CTL10.
"""

from collections.abc import Callable

from storage_engine.core.errors import HeadraceError
from storage_engine.core.ports import MetadataStore, ZkReply, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import ClusterIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import PERSISTENT_PATHS


def agree_on_cluster_id(
    metadata_store: MetadataStore,
    *,
    on_known: Callable[[str], None],
    on_failed: Callable[[HeadraceError], None],
) -> None:
    """Make the persistent paths, then read or create the id. Exactly one callback is called."""

    def agreed(outcome: str | HeadraceError) -> None:
        if isinstance(outcome, HeadraceError):
            on_failed(outcome)
        else:
            on_known(outcome)

    flows = Flows()
    flows.start(_agree(ZookeeperFlows(metadata_store), flows), agreed)


def _agree(zookeeper: ZookeeperFlows, flows: Flows) -> Flow[str | HeadraceError]:
    replies = yield from flows.together(
        zookeeper.create(path, b"", make_parents=True) for path in PERSISTENT_PATHS
    )
    made = zip(PERSISTENT_PATHS, replies, strict=True)
    missing = [path for path, reply in made if not _is_there(reply)]
    if missing:
        return _failure(f"can't create {', '.join(missing)}")
    data = ClusterIdZNode.random().encode()
    created = yield from zookeeper.create(ClusterIdZNode.PATH, data, make_parents=True)
    if not _is_there(created):
        return _failure(f"can't create {ClusterIdZNode.PATH}")
    found = yield from zookeeper.get(ClusterIdZNode.PATH)
    if not found.ok:
        return _failure(f"can't read {ClusterIdZNode.PATH}")
    try:
        return ClusterIdZNode.decode(found.data).cluster_id
    except ZnodeFormatError as failure:
        return failure


def _is_there(reply: ZkReply) -> bool:
    return reply.status in (ZkStatus.OK, ZkStatus.NODE_EXISTS)


def _failure(what: str) -> HeadraceError:
    return HeadraceError(f"{what} in ZooKeeper: is it up, and may this broker write there?")
