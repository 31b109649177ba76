"""The cluster's id: made by the first broker, read by all others, and the persistent parents of
everything else.

Rule: whoever creates /cluster/id first decides; it never changes. Source: R-CTL10.
"""

from collections.abc import Callable

from storage_engine.broker.controller.gather import Gather
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ports import MetadataStore, ZkReply, ZkStatus
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes import PERSISTENT_PATHS, ClusterIdZNode


def agree_on_cluster_id(
    metadata_store: MetadataStore,
    *,
    on_known: Callable[[str], object],
    on_failed: Callable[[HeadraceError], object],
) -> None:
    """Make the persistent paths, then read or create the id. Exactly one callback is called."""
    unknown: list[str] = []

    def on_path(path: str, reply: ZkReply) -> None:
        if reply.status not in (ZkStatus.OK, ZkStatus.NODE_EXISTS):
            unknown.append(path)
        gather.one()

    def on_paths() -> None:
        if unknown:
            fail(f"can't create {', '.join(unknown)}")
        else:
            metadata_store.create(
                ClusterIdZNode.PATH,
                ClusterIdZNode.random().encode(),
                on_created,
                make_parents=True,
            )

    def on_created(reply: ZkReply) -> None:
        if reply.status in (ZkStatus.OK, ZkStatus.NODE_EXISTS):
            metadata_store.get(ClusterIdZNode.PATH, on_read)
        else:
            fail(f"can't create {ClusterIdZNode.PATH}")

    def on_read(reply: ZkReply) -> None:
        if not reply.ok:
            fail(f"can't read {ClusterIdZNode.PATH}")
            return
        try:
            on_known(ClusterIdZNode.decode(reply.data).cluster_id)
        except ZnodeFormatError as failure:
            on_failed(failure)

    def fail(what: str) -> None:
        on_failed(HeadraceError(f"{what} in ZooKeeper: is it up, and may this broker write there?"))

    gather = Gather(len(PERSISTENT_PATHS), on_paths)
    for path in PERSISTENT_PATHS:
        metadata_store.create(
            path,
            b"",
            lambda reply, path=path: on_path(path, reply),  # type: ignore[misc]
            make_parents=True,
        )
