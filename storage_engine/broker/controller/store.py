"""Brokers and partitions' states in ZooKeeper, as one elected controller reads and writes them.

A partition's state is written only in one multi with the fence's check, so that a controller that
has been replaced can't write (R-CTL2). Values that can't be decoded are logged and left out;
nothing crashes on what others wrote. Source: R-CTL5, R-CTL10.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from storage_engine.broker.controller.fence import ControllerFence
from storage_engine.core.control.cluster_state import (
    ONLY_LISTENER,
    BrokerEndpoint,
    BrokerInfo,
    PartitionState,
)
from storage_engine.core.control.controller_events import StateWrite, WriteOutcome
from storage_engine.core.ids import (
    TAIL_LOST_NOW,
    BrokerEpoch,
    BrokerId,
    PartitionEpoch,
    TopicPartition,
    topic_name_problem,
)
from storage_engine.core.ports import MetadataStore, ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, Watch, ZookeeperFlows
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.broker_znodes import BrokerIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import (
    PartitionStateZNode,
    PartitionsZNode,
    TopicZNode,
)

log = logging.getLogger(__name__)

PARTITIONS_PER_MULTI = 32
"""A failover writes the states of all partitions of a broker; ZooKeeper and its client take a
request of many operations in a fraction of the time of as many requests."""

STATES_PER_READ = 256
"""States that are read at a time and decoded in one turn of the loop: some 20 ms."""

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
        """`listener`: the one by which this broker connects to others."""
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
        """Nodes that no session holds, with their creation ids: they were named in the log."""

    # --- reading; a flow that returns None could not read: try again later ---

    def read_brokers(self, watch: Watch) -> Flow[dict[BrokerId, BrokerInfo] | None]:
        """Reads all registered brokers; the watch fires when one registers or goes."""
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
        """Logs once that a registration is not a broker's: partitions assigned to it would have no
        replica there, and its znode never goes."""
        if (broker_id, czxid) not in self._no_brokers:
            self._no_brokers.add((broker_id, czxid))
            log.error("%s is no broker's: ignored", BrokerIdZNode.path(broker_id))

    def _known(self, broker_id: BrokerId, czxid: int) -> BrokerInfo | None:
        """The same incarnation as it was read before somebody wrote into its node."""
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
        """None for a partition without a state. A state that can't be decoded is left out, so that
        the partition stays as it is."""
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
        """Each on its own condition. `done` comes once for each part of them, so that brokers hear
        of the first while the last are written."""
        # The parent of all partitions may be there already.
        created = (w.partition.topic for w in writes if w.expected_partition_epoch is None)
        for topic in dict.fromkeys(created):
            self._metadata_store.create(PartitionsZNode.path(topic), b"", lambda _reply: None)
        for start in range(0, len(writes), PARTITIONS_PER_MULTI):
            part = writes[start : start + PARTITIONS_PER_MULTI]
            self._flows.start(self._write_part(part, done))

    def _write_part(self, writes: Sequence[StateWrite], done: OnStatesWritten) -> Flow[None]:
        """Writes all states in one multi, or each in its own when one of them makes the multi
        fail."""
        outcome = WriteOutcome.CONFLICT
        try:
            operations = [operation for write in writes for operation in self._operations(write)]
        except ZnodeFormatError as failure:
            # It follows from what others wrote there: read again until that is mended.
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
            for write in writes:
                self._flows.start(self._write_part([write], done))
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
    """The listeners of the broker; none where the only one is what `host` and `port` say."""
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
