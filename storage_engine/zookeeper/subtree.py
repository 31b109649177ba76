"""Removes a node and all children that other programs may have created below it.

ZooKeeper removes only nodes without children, so the deepest go first. Every step checks the same
guard, so that nothing more is removed once it fails. Only `core.ports` is used, so that it runs in
the simulation too.
"""

from collections.abc import Sequence

from storage_engine.core.ports import ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.zookeeper.flow import Flow, ZookeeperFlows

MAX_LISTINGS = 10
"""The most listings of one node: children that others create as fast as they are removed are left
to a later attempt."""


def remove_subtree(
    zookeeper: ZookeeperFlows, path: str, *, guard: Sequence[ZkOp] = (), version: int = -1
) -> Flow[ZkReply]:
    """Remove `path`, which must be of this version, and all below it. Returns OK when it is gone,
    or was not there, else the reply that refused the guard or a node."""
    # Each node stands before those that were found below it, with its version and how often its
    # children were listed.
    stack = [(path, version, 0)]
    while stack:
        path, version, listings = stack[-1]
        deletion = ZkOp(kind=ZkOpKind.DELETE, path=path, version=version)
        deleted = yield from zookeeper.multi([*guard, deletion])
        is_gone = deleted.is_absent and deleted.failed == len(guard)
        if deleted.ok or is_gone:
            stack.pop()
            continue
        if deleted.status is not ZkStatus.NOT_EMPTY or listings == MAX_LISTINGS:
            return deleted
        stack[-1] = path, version, listings + 1
        listed = yield from zookeeper.children(path)
        if not listed.ok and not listed.is_absent:
            return listed
        stack.extend((child, -1, 0) for child in _children(path, listed))
    return ZkReply(status=ZkStatus.OK)


def remove_children(
    zookeeper: ZookeeperFlows, path: str, *, guard: Sequence[ZkOp] = ()
) -> Flow[ZkReply]:
    """Remove all below `path`, as `remove_subtree` does."""
    listed = yield from zookeeper.children(path)
    if not listed.ok and not listed.is_absent:
        return listed
    for child in _children(path, listed):
        removed = yield from remove_subtree(zookeeper, child, guard=guard)
        if not removed.ok:
            return removed
    return ZkReply(status=ZkStatus.OK)


def _children(path: str, listed: ZkReply) -> list[str]:
    return [f"{path}/{name}" for name in listed.children] if listed.ok else []
