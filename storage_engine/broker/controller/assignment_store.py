"""The controller's writes of assignments: /brokers/topics/<topic>, partition by partition.

A change is made only where the node still says what it was decided on, and only by the present
controller; everything else in the node stays as others wrote it. Source: R-CTL8.
"""

import logging
from dataclasses import replace

from storage_engine.broker.controller.fence import ControllerFence
from storage_engine.broker.controller.topic_store import reassignments_of
from storage_engine.core.control.cluster_state import TopicInfo
from storage_engine.core.control.controller_events import AssignmentChange, WriteAssignments
from storage_engine.core.ports import MetadataStore, Scheduler, ZkOp, ZkOpKind, ZkStatus
from storage_engine.zookeeper.flow import Flow, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

log = logging.getLogger(__name__)
state_change_log = logging.getLogger("headrace.state_change")

RETRY_MS = 500
"""Pause before a write whose answer was lost is looked at again."""

CONFLICT_PAUSE_MS = 20
"""Pause after an attempt that wrote nothing, before the topic is read or passed on as it is."""


class AssignmentStore:
    """Topic nodes as one elected controller changes them."""

    def __init__(
        self, metadata_store: MetadataStore, scheduler: Scheduler, fence: ControllerFence
    ) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._fence = fence

    def write(self, effect: WriteAssignments) -> Flow[TopicZNode | None]:
        """The node as it is afterwards; None when there is none that can be read."""
        path = TopicZNode.path(effect.topic)
        while True:
            found = yield from self._zookeeper.get(path)
            if found.status is ZkStatus.NO_NODE:
                yield from pause(self._scheduler, RETRY_MS)
                return None
            if not found.ok or found.stat is None:
                yield from pause(self._scheduler, RETRY_MS)
                continue
            try:
                node = TopicZNode.decode(effect.topic, found.data)
            except ZnodeFormatError as failure:
                log.error("topic not reassigned: %s", failure)
                yield from pause(self._scheduler, RETRY_MS)
                return None
            changed = _changed(node, effect.changes)
            if changed == node:
                yield from pause(self._scheduler, CONFLICT_PAUSE_MS)
                return node
            version = found.stat.version
            change = ZkOp(kind=ZkOpKind.SET, path=path, data=changed.encode(), version=version)
            written = yield from self._zookeeper.multi([self._fence.check, change])
            if written.ok:
                _log_changes(effect)
                return changed
            self._fence.verify()
            is_unknown = written.status is ZkStatus.UNKNOWN
            yield from pause(self._scheduler, RETRY_MS if is_unknown else CONFLICT_PAUSE_MS)


def with_assignment(known: TopicInfo, node: TopicZNode) -> TopicInfo:
    """The topic as it is known, with the assignment of its node."""
    return replace(known, assignment=dict(node.assignment), reassignments=reassignments_of(node))


def _changed(node: TopicZNode, changes: tuple[AssignmentChange, ...]) -> TopicZNode:
    assignment = dict(node.assignment)
    original, target = dict(node.original_replicas), dict(node.target_replicas)
    moves = reassignments_of(node)
    for change in changes:
        partition, wanted = change.partition, change.wanted
        if (assignment.get(partition), moves.get(partition)) != (
            change.expected.replicas,
            change.expected.reassignment,
        ):
            continue
        assignment[partition] = wanted.replicas
        original.pop(partition, None)
        target.pop(partition, None)
        if wanted.reassignment is not None:
            original[partition] = wanted.reassignment.original
            target[partition] = wanted.reassignment.target
    return replace(node, assignment=assignment, original_replicas=original, target_replicas=target)


def _log_changes(effect: WriteAssignments) -> None:
    for change in effect.changes:
        move = change.wanted.reassignment
        state_change_log.info(
            "assign partition=%s-%d replicas=%s target=%s",
            effect.topic,
            change.partition,
            list(change.wanted.replicas),
            list(move.target if move is not None else change.wanted.replicas),
        )
