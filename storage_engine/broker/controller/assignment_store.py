"""The controller's writes of assignments: /brokers/topics/<topic>, partition by partition.

Rule: a change is made only where the node still says what it was decided on, and only by the
present controller; everything else in the node stays as others wrote it. Source: R-CTL8; document
001 (reassignment, steps 1 and 10).
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from storage_engine.broker.controller.store import ControllerStore
from storage_engine.broker.controller.topic_store import reassignments_of
from storage_engine.core.control.cluster_state import TopicInfo
from storage_engine.core.control.controller_events import AssignmentChange, WriteAssignments
from storage_engine.core.ports import MetadataStore, Scheduler, ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes import TopicZNode

log = logging.getLogger(__name__)
state_change_log = logging.getLogger("headrace.state_change")

Tell = Callable[[TopicZNode | None], None]
"""Hears the node as it is after the write; None when there is none."""

RETRY_MS = 500
"""Pause before a write whose answer was lost is looked at again."""

CONFLICT_PAUSE_MS = 20
"""Pause before a topic is told as it is where nothing could be written."""


class AssignmentStore:
    """Topic nodes as one elected controller changes them."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        store: ControllerStore,
        scheduler: Scheduler,
        *,
        fenced: Callable[[], None],
    ) -> None:
        self._metadata_store = metadata_store
        self._store = store
        self._scheduler = scheduler
        self._fenced = fenced
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def write(
        self,
        effect: WriteAssignments,
        known: Callable[[], TopicInfo | None],
        done: Callable[[TopicInfo | None], None],
    ) -> None:
        """`done(topic as it is afterwards)`; None when it does not exist. `known` is what of a
        topic does not stand in its node."""

        def tell(node: TopicZNode | None) -> None:
            info = known()
            if not self._closed:
                done(None if info is None or node is None else _told(info, node))

        self._read(effect, tell)

    def _read(self, effect: WriteAssignments, tell: Tell) -> None:
        def on_read(reply: ZkReply) -> None:
            if self._closed:
                return
            if reply.ok and reply.stat is not None:
                self._change(effect, reply.data, reply.stat.version, tell)
            elif reply.status is ZkStatus.NO_NODE:
                self._scheduler.call_later(RETRY_MS, lambda: tell(None))
            else:
                self._scheduler.call_later(RETRY_MS, lambda: self._read(effect, tell))

        if not self._closed:
            self._metadata_store.get(TopicZNode.path(effect.topic), on_read)

    def _change(self, effect: WriteAssignments, data: bytes, version: int, tell: Tell) -> None:
        try:
            node = TopicZNode.decode(effect.topic, data)
        except ZnodeFormatError as failure:
            log.error("topic not reassigned: %s", failure)
            self._scheduler.call_later(RETRY_MS, lambda: tell(None))
            return
        changed = _changed(node, effect.changes)
        if changed == node:
            self._scheduler.call_later(CONFLICT_PAUSE_MS, lambda: tell(node))
            return

        def on_written(reply: ZkReply) -> None:
            if self._closed:
                return
            if reply.ok:
                _log_changes(effect)
                tell(changed)
                return
            self._store.check_epoch(self._fenced)
            pause_ms = RETRY_MS if reply.status is ZkStatus.UNKNOWN else CONFLICT_PAUSE_MS
            self._scheduler.call_later(pause_ms, lambda: self._read(effect, tell))

        path = TopicZNode.path(effect.topic)
        operations = [
            self._store.epoch_check(),
            ZkOp(kind=ZkOpKind.SET, path=path, data=changed.encode(), version=version),
        ]
        self._metadata_store.multi(operations, on_written)


def _told(known: TopicInfo, node: TopicZNode) -> TopicInfo:
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
