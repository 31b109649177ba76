"""Creates the cluster's id, or reads the one that another broker created, and creates the
persistent parents of all other znodes.

The first broker that creates /cluster/id decides the id; it never changes. Source: R-CTL10.

The same transaction creates the levels of features, the newest ones, and the epoch of controllers,
where none of the three is there: so a cluster begins at the newest levels exactly when a broker of
this version has made it, and whatever an earlier release has made is left as it is.
"""

from collections.abc import Callable

from storage_engine.core.errors import HeadraceError
from storage_engine.core.features import NEWEST_LEVELS, UnsupportedFeatureError, check_supported
from storage_engine.core.ports import MetadataStore, ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import (
    INITIAL_CONTROLLER_EPOCH,
    ClusterIdZNode,
    ControllerEpochZNode,
    FeatureZNode,
)
from storage_engine.zookeeper.znodes.topic_znodes import PERSISTENT_PATHS


def agree_on_cluster_id(
    metadata_store: MetadataStore,
    *,
    on_known: Callable[[str], None],
    on_failed: Callable[[HeadraceError], None],
) -> None:
    """Make the persistent paths, then read or create the id. Exactly one callback is called.
    `on_failed` also where this version does not support the levels of features that the cluster
    uses: such a broker is not to open its logs."""

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
    parents = zip(PERSISTENT_PATHS, replies, strict=True)
    missing = [path for path, reply in parents if not _is_there(reply)]
    if missing:
        return _failure(f"can't create {', '.join(missing)}")
    first = _first_nodes()
    created = yield from zookeeper.multi(
        [ZkOp(kind=ZkOpKind.CREATE, path=path, data=data) for path, data in first.items()]
    )
    if created.status is ZkStatus.NODE_EXISTS:
        # The id alone may be missing.
        created = yield from zookeeper.create(ClusterIdZNode.PATH, first[ClusterIdZNode.PATH])
    if not _is_there(created):
        return _failure(f"can't create {ClusterIdZNode.PATH}")
    found = yield from zookeeper.get(ClusterIdZNode.PATH)
    if not found.ok:
        return _failure(f"can't read {ClusterIdZNode.PATH}")
    features = yield from zookeeper.get(FeatureZNode.PATH)
    if not features.ok and not features.is_absent:
        return _failure(f"can't read {FeatureZNode.PATH}")
    try:
        if features.ok:
            check_supported(FeatureZNode.decode(features.data).levels)
        return ClusterIdZNode.decode(found.data).cluster_id
    except UnsupportedFeatureError as failure:
        return failure
    except ZnodeFormatError as failure:
        return HeadraceError(f"{failure}: write there what it held before, which a backup has")


def _first_nodes() -> dict[str, bytes]:
    """Return the nodes of a cluster that has never been: path -> content."""
    return {
        ClusterIdZNode.PATH: ClusterIdZNode.random().encode(),
        ControllerEpochZNode.PATH: ControllerEpochZNode.encode(INITIAL_CONTROLLER_EPOCH),
        FeatureZNode.PATH: FeatureZNode(levels=NEWEST_LEVELS).encode(),
    }


def _is_there(reply: ZkReply) -> bool:
    return reply.status in (ZkStatus.OK, ZkStatus.NODE_EXISTS)


def _failure(what: str) -> HeadraceError:
    return HeadraceError(f"{what} in ZooKeeper: is it up, and may this broker write there?")
