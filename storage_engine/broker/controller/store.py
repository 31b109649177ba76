"""Everything that one elected controller reads from ZooKeeper and writes there: brokers, the states
of partitions (`ControllerStore`), assignments (`AssignmentStore`), and the removal of topics whose
replicas are all deleted (`TopicRemoval`).

Every write is in one multi with the check of the fence: the controller's epoch is still the newest.
So a controller that has been replaced can't write; when a multi is refused for this reason, the
controller ends. Values that can't be decoded are logged and left out: nothing crashes on what other
programs wrote. Source: R-CTL1, R-CTL2, R-CTL5, R-CTL6, R-CTL8, R-CTL10.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from storage_engine.broker.controller.topic_store import reassignments_of
from storage_engine.core.control.cluster_state import (
    ONLY_LISTENER,
    BrokerEndpoint,
    BrokerInfo,
    PartitionState,
    TopicInfo,
)
from storage_engine.core.control.controller_events import (
    AssignmentChange,
    StateWrite,
    WriteAssignments,
    WriteOutcome,
)
from storage_engine.core.ids import (
    TAIL_LOST_NOW,
    BrokerEpoch,
    BrokerId,
    PartitionEpoch,
    TopicPartition,
    topic_name_problem,
)
from storage_engine.core.ports import MetadataStore, Scheduler, ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.flow import (
    Flow,
    Flows,
    Watch,
    ZookeeperFlows,
    pause,
    remove_children,
    remove_subtree,
)
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import (
    BrokerIdZNode,
    ConfigZNode,
    ControllerEpochZNode,
)
from storage_engine.zookeeper.znodes.topic_znodes import (
    PartitionStateZNode,
    PartitionsZNode,
    TopicZNode,
)

log = logging.getLogger(__name__)


class ControllerFence:
    """The version of `/controller_epoch` that this controller was elected with."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        flows: Flows,
        *,
        epoch_znode_version: int,
        on_replaced: Callable[[], None],
    ) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = flows
        self._on_replaced = on_replaced
        self.check = ZkOp(
            kind=ZkOpKind.CHECK, path=ControllerEpochZNode.PATH, version=epoch_znode_version
        )
        """The operation that makes a multi fail unless its controller is the present one."""

    def verify(self) -> None:
        """Check, after a refused multi, whether the controller epoch was the reason; if so, this
        controller ends."""
        self._flows.start(self.is_current())

    def is_current(self) -> Flow[bool | None]:
        """Whether no later controller was elected; None: ZooKeeper did not answer. If one was, this
        controller has ended by then."""
        reply = yield from self._zookeeper.exists(ControllerEpochZNode.PATH)
        if reply.ok and reply.stat is not None:
            is_current = reply.stat.version == self.check.version
        elif reply.is_absent:
            # The next elected controller creates it again.
            is_current = False
        else:
            return None
        if not is_current:
            self._on_replaced()
        return is_current


PARTITIONS_PER_MULTI = 128
"""The most partitions of one multi: those of one turn of elections, 40 KiB. A failover writes the
states of all partitions of a broker; one request of many operations takes a fraction of the time of
as many requests, and brokers hear of them together."""

PARTS_OF_REFUSED = 8
"""A multi that is refused is written in so many parts, down to single partitions."""

STATES_PER_READ = 256
"""The number of states that are read together and decoded in one turn: some 20 ms."""

OnStatesWritten = Callable[[Mapping[TopicPartition, tuple[WriteOutcome, PartitionState]]], None]


class ControllerStore:
    """ZooKeeper as one elected controller uses it."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        flows: Flows,
        fence: ControllerFence,
        listener: str = ONLY_LISTENER,
    ) -> None:
        """`listener`: the listener by which this broker connects to others."""
        self._metadata_store = metadata_store
        self._listener = listener
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = flows
        self._fence = fence
        self._brokers: dict[BrokerId, BrokerInfo] = {}
        """The brokers as they were last read."""
        self.unreadable_brokers: list[BrokerId] = []
        """Brokers whose nodes could not be decoded when they were read last."""
        self._no_brokers: set[tuple[BrokerId, int]] = set()
        """Ownerless broker nodes, with their creation ids, that were logged already."""

    # --- reading; a flow that returns None could not read: try again later ---

    def read_brokers(self, watch: Watch) -> Flow[dict[BrokerId, BrokerInfo] | None]:
        """Read all registered brokers; the watch fires when one registers or goes."""
        listed = yield from self._zookeeper.children(BrokerIdZNode.PARENT, watch)
        if not listed.ok:
            return None
        ids = {BrokerIdZNode.path(broker): broker for broker in BrokerIdZNode.ids(listed.children)}
        replies = yield from self._zookeeper.get_each(ids)
        if any(not reply.ok and not reply.is_absent for reply in replies.values()):
            return None
        brokers: dict[BrokerId, BrokerInfo] = {}
        unreadable: list[BrokerId] = []
        for path, reply in replies.items():
            if not reply.ok or reply.stat is None:
                continue
            broker_id = ids[path]
            if reply.stat.ephemeral_owner == 0:
                self._log_no_broker(broker_id, reply.stat.czxid)
                continue
            info = _broker_info(broker_id, reply, self._listener)
            if info is None:
                unreadable.append(broker_id)
                info = self._known(broker_id, reply.stat.czxid)
            if info is not None:
                brokers[broker_id] = info
        self._brokers, self.unreadable_brokers = brokers, unreadable
        return brokers

    def _log_no_broker(self, broker_id: BrokerId, czxid: int) -> None:
        """Log once that a registration is not a broker's: partitions assigned to it would have no
        replica there, and its znode never goes."""
        if (broker_id, czxid) not in self._no_brokers:
            self._no_brokers.add((broker_id, czxid))
            log.error(
                "znode %s is not the registration of a broker: ignored",
                BrokerIdZNode.path(broker_id),
            )

    def _known(self, broker_id: BrokerId, czxid: int) -> BrokerInfo | None:
        """The broker as read before its node was overwritten, if it is the same incarnation."""
        known = self._brokers.get(broker_id)
        return known if known is not None and known.epoch == czxid else None

    def list_topics(self, watch: Watch) -> Flow[list[str] | None]:
        listed = yield from self._zookeeper.children(TopicZNode.PARENT, watch)
        if not listed.ok:
            return None
        # Names that no topic can have are not even read: each listing would bring them again.
        return sorted(name for name in listed.children if topic_name_problem(name) is None)

    def read_states(
        self, partitions: Iterable[TopicPartition]
    ) -> Flow[dict[TopicPartition, PartitionState | None] | None]:
        """The states; None for a partition without one. A state that can't be decoded is left out,
        so that the partition stays as it is."""
        every = tuple(partitions)
        found: dict[TopicPartition, PartitionState | None] = {}
        for start in range(0, len(every), STATES_PER_READ):
            part = every[start : start + STATES_PER_READ]
            wanted = {PartitionStateZNode.path(tp.topic, tp.partition): tp for tp in part}
            replies = yield from self._zookeeper.get_each(wanted)
            for path, reply in replies.items():
                if reply.ok and reply.stat is not None:
                    state = _partition_state(wanted[path], reply)
                    if state is not None:
                        found[wanted[path]] = state
                elif reply.is_absent:
                    found[wanted[path]] = None
                else:
                    return None
        return found

    # --- writing ---

    def write_states(self, writes: Sequence[StateWrite], done: OnStatesWritten) -> None:
        """Write each state on its own condition. `done` is called for each part of them, so that
        brokers learn of the first while the last are written."""
        # The parent of all partitions may be there already.
        created = (w.partition.topic for w in writes if w.expected_partition_epoch is None)
        for topic in dict.fromkeys(created):
            self._metadata_store.create(PartitionsZNode.path(topic), b"", lambda _reply: None)
        for start in range(0, len(writes), PARTITIONS_PER_MULTI):
            part = writes[start : start + PARTITIONS_PER_MULTI]
            self._flows.start(self._write_part(part, done))

    def _write_part(self, writes: Sequence[StateWrite], done: OnStatesWritten) -> Flow[None]:
        """Write all states in one multi; if it is refused, in smaller ones."""
        outcome = WriteOutcome.CONFLICT
        try:
            operations = [operation for write in writes for operation in self._operations(write)]
        except ZnodeFormatError as failure:
            # The cause is other programs' content: the state is read again until it is repaired.
            if len(writes) == 1:
                log.error("state of partition=%s not written: %s", writes[0].partition, failure)
        else:
            reply = yield from self._zookeeper.multi([self._fence.check, *operations])
            if reply.ok:
                outcome = WriteOutcome.ACCEPTED
            elif reply.status is ZkStatus.UNKNOWN:
                outcome = WriteOutcome.UNKNOWN
            elif len(writes) == 1:
                self._fence.verify()
        if outcome is WriteOutcome.CONFLICT and len(writes) > 1:
            size = -(-len(writes) // PARTS_OF_REFUSED)
            for start in range(0, len(writes), size):
                self._flows.start(self._write_part(writes[start : start + size], done))
            return
        done({write.partition: (outcome, write.state) for write in writes})

    def _operations(self, write: StateWrite) -> list[ZkOp]:
        tp = write.partition
        state = write.state
        path = PartitionStateZNode.path(tp.topic, tp.partition)
        data = PartitionStateZNode(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            controller_epoch=state.controller_epoch,
            joined_epochs=state.joined_epochs,
        ).encode()
        if write.expected_partition_epoch is None:
            creation = ZkOp(kind=ZkOpKind.CREATE, path=path, data=data)
            if write.partition_exists:
                return [creation]
            parent = PartitionStateZNode.partition_path(tp.topic, tp.partition)
            return [ZkOp(kind=ZkOpKind.CREATE, path=parent), creation]
        expected = write.expected_partition_epoch
        return [ZkOp(kind=ZkOpKind.SET, path=path, data=data, version=expected)]


def _endpoints(node: BrokerIdZNode) -> tuple[BrokerEndpoint, ...]:
    """The broker's listeners; none where `host` and `port` are the address of the only one."""
    only = BrokerEndpoint(ONLY_LISTENER, node.host or "", node.port)
    return () if node.listeners in ((), (only,)) else node.listeners


def _broker_info(broker_id: BrokerId, reply: ZkReply, listener: str) -> BrokerInfo | None:
    assert reply.stat is not None
    try:
        node = BrokerIdZNode.decode(broker_id, reply.data)
    except ZnodeFormatError as failure:
        log.error("broker ignored: %s", failure)
        return None
    epoch = BrokerEpoch(reply.stat.czxid)
    endpoints = _endpoints(node)
    host, port = node.host, node.port
    for endpoint in endpoints:
        if endpoint.listener == listener:
            host, port = endpoint.host, endpoint.port
    if endpoints and host is None:
        log.error("broker %d has no listener %s: brokers can't reach it", broker_id, listener)
        host, port = endpoints[0].host, endpoints[0].port
    assert host is not None, "a node without host and endpoints is not decoded"
    return BrokerInfo(
        broker_id=broker_id,
        host=host,
        port=port,
        endpoints=endpoints,
        rack=node.rack,
        epoch=epoch,
        supported=node.supported,
        tail_lost_epoch=epoch if node.tail_lost_epoch == TAIL_LOST_NOW else node.tail_lost_epoch,
    )


def _partition_state(tp: TopicPartition, reply: ZkReply) -> PartitionState | None:
    assert reply.stat is not None
    try:
        node = PartitionStateZNode.decode(tp.topic, tp.partition, reply.data)
    except ZnodeFormatError as failure:
        log.error("state ignored: %s", failure)
        return None
    return PartitionState(
        leader=node.leader,
        leader_epoch=node.leader_epoch,
        isr=tuple(node.isr),
        controller_epoch=node.controller_epoch,
        partition_epoch=PartitionEpoch(reply.stat.version),
        written_zxid=reply.stat.mzxid,
        joined_epochs=node.joined_epochs,
    )


state_change_log = logging.getLogger("headrace.state_change")

RETRY_MS = 500
"""Pause before the topic is read again after a write without an answer."""

CONFLICT_PAUSE_MS = 20
"""Pause after an attempt that wrote nothing, before the topic is read again or passed on."""


class AssignmentStore:
    """Changes the assignments in topic nodes, but only where a node still has the assignment that
    the change was decided on; everything else in it stays as other programs wrote it."""

    def __init__(
        self, metadata_store: MetadataStore, scheduler: Scheduler, fence: ControllerFence
    ) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._fence = fence

    def write(self, effect: WriteAssignments) -> Flow[TopicZNode | None]:
        """Write the changes; return the node afterwards, or None when there is no readable one."""
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
    """The known topic, with the assignment in its node."""
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


MAX_CLEARINGS = 10
"""The most times that one removal clears the nodes below a topic. Where others keep creating nodes,
a later attempt continues."""


class TopicRemoval:
    """Removes the nodes of topics, and what other programs have created below them.

    The nodes of a topic's partitions are removed first, then topic, settings and the request for
    the deletion in one multi, so that the removal of the old topic takes nothing from a new one of
    that name, even when its outcome is unknown.
    """

    def __init__(self, metadata_store: MetadataStore, fence: ControllerFence) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._fence = fence
        self._unanswered: dict[str, int] = {}
        """Topics whose removal ZooKeeper did not answer -> the creation ids of their nodes."""

    def remove(self, topic: str, partitions: Iterable[int]) -> Flow[bool]:
        """Remove the topic's nodes; return whether all are gone, otherwise try again."""
        if topic in self._unanswered:
            has_successor = yield from self._has_successor(topic)
            if has_successor is not False:
                return has_successor is True
        paths = [
            path
            for partition in partitions
            for path in (
                PartitionStateZNode.path(topic, partition),
                PartitionStateZNode.partition_path(topic, partition),
            )
        ]
        guard = [self._fence.check]
        for path in (*paths, PartitionsZNode.path(topic)):
            removed = yield from remove_subtree(self._zookeeper, path, guard=guard)
            if not removed.ok:
                return self._refused(removed)
        return (yield from self._remove_heads(topic))

    def _has_successor(self, topic: str) -> Flow[bool | None]:
        """Whether the unanswered removal was carried out, and a later topic has the name; None:
        ZooKeeper did not answer."""
        path, request = TopicZNode.path(topic), DeleteTopicsZNode.topic_path(topic)
        found = yield from self._zookeeper.exist_each((path, request))
        if _has_failed(found):
            return None
        czxid, stat = self._unanswered.pop(topic), found[path].stat
        # The request went with the node: one that exists now is for the later topic.
        return stat is not None and stat.czxid != czxid and not found[request].ok

    def _remove_heads(self, topic: str) -> Flow[bool]:
        guard = [self._fence.check]
        heads = (
            TopicZNode.path(topic),
            ConfigZNode.topic_path(topic),
            DeleteTopicsZNode.topic_path(topic),
        )
        for clearings_left in range(MAX_CLEARINGS, -1, -1):
            found = yield from self._zookeeper.exist_each(heads)
            if _has_failed(found):
                return False
            present = [path for path in heads if found[path].ok]
            operations = [*guard, *(ZkOp(kind=ZkOpKind.DELETE, path=path) for path in present)]
            removed = yield from self._zookeeper.multi(operations)
            if removed.ok:
                return True
            stat = found[heads[0]].stat
            if removed.status is ZkStatus.UNKNOWN and stat is not None:
                self._unanswered[topic] = stat.czxid
            if removed.status is not ZkStatus.NOT_EMPTY or not clearings_left:
                return self._refused(removed)
            assert removed.failed is not None, "a refused multi says which operation it was"
            path = operations[removed.failed].path
            cleared = yield from remove_children(self._zookeeper, path, guard=guard)
            if not cleared.ok:
                return self._refused(cleared)
        return False

    def _refused(self, reply: ZkReply) -> bool:
        if reply.status in (ZkStatus.BAD_VERSION, ZkStatus.NO_NODE):
            self._fence.verify()
        return False


def _has_failed(found: Mapping[str, ZkReply]) -> bool:
    """Whether ZooKeeper left one of these reads unanswered."""
    return any(not reply.ok and not reply.is_absent for reply in found.values())
