"""The controller's reads and writes in ZooKeeper.

Rule: a partition's state is written only in one multi with a check of `/controller_epoch`, so that
a controller that has been replaced can't write (R-CTL2). Values that can't be decoded are logged
and left out; nothing crashes on what others wrote. Source: R-CTL5, R-CTL10.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from storage_engine.broker.controller.gather import Gather
from storage_engine.broker.controller.topic_store import TopicStore
from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState
from storage_engine.core.control.controller_events import StateWrite, WriteOutcome
from storage_engine.core.ids import (
    TAIL_LOST_NOW,
    BrokerEpoch,
    BrokerId,
    PartitionEpoch,
    TopicPartition,
    topic_name_problem,
)
from storage_engine.core.ports import MetadataStore, ZkOp, ZkOpKind, ZkReply, ZkStat, ZkStatus
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.subtree import remove_children, remove_subtree
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes import (
    BrokerIdZNode,
    ConfigZNode,
    ControllerEpochZNode,
    PartitionStateZNode,
    PartitionsZNode,
    TopicZNode,
)

log = logging.getLogger(__name__)

PARTITIONS_PER_MULTI = 32
"""A failover writes the states of all partitions of a broker; ZooKeeper and its client take a
request of many operations in a fraction of the time of as many requests."""

MAX_CLEARINGS = 10
"""Of the nodes of one topic: whoever goes on making nodes below them is left to a later attempt."""

Watch = Callable[[], None]


class ControllerStore:
    """ZooKeeper as one elected controller uses it."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        *,
        epoch_znode_version: int,
        unclean_default: Callable[[], bool],
    ) -> None:
        self._metadata_store = metadata_store
        self._epoch_version = epoch_znode_version
        self.topics = TopicStore(metadata_store, unclean_default=unclean_default)
        self._brokers: dict[BrokerId, BrokerInfo] = {}
        """As they were read last."""
        self.unreadable_brokers: list[BrokerId] = []
        """Those of them of which nothing could be made out then."""
        self._no_brokers: set[tuple[BrokerId, int]] = set()
        """Nodes that no session holds, with their creation ids: they were named in the log."""
        self._may_be_gone: dict[str, int] = {}
        """Topics whose deletion ZooKeeper did not answer -> the creation ids of their nodes."""

    # --- reading; each `done(None)` means: could not be read, try again later ---

    def read_brokers(
        self, watch: Watch | None, done: Callable[[dict[BrokerId, BrokerInfo] | None], None]
    ) -> None:
        """All registered brokers; the watch fires when one comes or goes."""

        def on_children(reply: ZkReply) -> None:
            if not reply.ok:
                done(None)
                return
            brokers: dict[BrokerId, BrokerInfo] = {}
            failed: list[BrokerId] = []
            unreadable: list[BrokerId] = []
            ids = BrokerIdZNode.ids(reply.value)

            def on_broker(broker_id: BrokerId, answer: ZkReply) -> None:
                if answer.ok and answer.stat is not None and answer.stat.ephemeral_owner == 0:
                    self._tell_of_no_broker(broker_id, answer.stat.czxid)
                elif answer.ok and answer.stat is not None:
                    info = _broker_info(broker_id, answer)
                    if info is None:
                        unreadable.append(broker_id)
                        info = self._known(broker_id, answer.stat.czxid)
                    if info is not None:
                        brokers[broker_id] = info
                elif not answer.is_absent:
                    failed.append(broker_id)
                gather.one()

            def finish() -> None:
                if failed:
                    done(None)
                    return
                self._brokers, self.unreadable_brokers = brokers, unreadable
                done(brokers)

            gather = Gather(len(ids), finish)
            for broker_id in ids:
                self._metadata_store.get(
                    BrokerIdZNode.path(broker_id),
                    lambda answer, broker_id=broker_id: on_broker(broker_id, answer),  # type: ignore[misc]
                )

        self._metadata_store.children(BrokerIdZNode.PARENT, on_children, watch)

    def _tell_of_no_broker(self, broker_id: BrokerId, czxid: int) -> None:
        """Once: partitions given to it would have no replica there, and its node never goes."""
        if (broker_id, czxid) not in self._no_brokers:
            self._no_brokers.add((broker_id, czxid))
            log.error("%s is no broker's: ignored", BrokerIdZNode.path(broker_id))

    def _known(self, broker_id: BrokerId, czxid: int) -> BrokerInfo | None:
        """The same incarnation as it was read before somebody wrote into its node."""
        known = self._brokers.get(broker_id)
        return known if known is not None and known.epoch == czxid else None

    def list_topics(self, watch: Watch | None, done: Callable[[list[str] | None], None]) -> None:
        def on_children(reply: ZkReply) -> None:
            # Names that no topic can have are not even read: each listing would bring them again.
            done(
                sorted(name for name in reply.value if topic_name_problem(name) is None)
                if reply.ok
                else None
            )

        self._metadata_store.children(TopicZNode.PARENT, on_children, watch)

    def read_states(
        self,
        partitions: Iterable[TopicPartition],
        done: Callable[[dict[TopicPartition, PartitionState | None] | None], None],
    ) -> None:
        wanted = list(partitions)
        found: dict[TopicPartition, PartitionState | None] = {}
        failed: list[TopicPartition] = []
        gather = Gather(len(wanted), lambda: done(None if failed else found))

        def on_state(tp: TopicPartition, reply: ZkReply) -> None:
            if reply.ok and reply.stat is not None:
                # A state that can't be decoded is left out: the partition stays as it is.
                state = _partition_state(tp, reply)
                if state is not None:
                    found[tp] = state
            elif reply.is_absent:
                found[tp] = None
            else:
                failed.append(tp)
            gather.one()

        for tp in wanted:
            self._metadata_store.get(
                PartitionStateZNode.path(tp.topic, tp.partition),
                lambda reply, tp=tp: on_state(tp, reply),  # type: ignore[misc]
            )

    # --- writing ---

    def write_states(
        self,
        writes: Sequence[StateWrite],
        done: Callable[[dict[TopicPartition, tuple[WriteOutcome, PartitionState]]], None],
        fenced: Callable[[], None],
    ) -> None:
        """Each on its own condition; `fenced` when the controller epoch has moved on. `done` comes
        once for each part of them, so that brokers hear of the first while the last are written.
        """
        # The parent of all partitions may be there already.
        for topic in {w.partition.topic for w in writes if w.expected_partition_epoch is None}:
            self._metadata_store.create(PartitionsZNode.path(topic), b"", lambda _reply: None)
        for start in range(0, len(writes), PARTITIONS_PER_MULTI):
            self._write_part(writes[start : start + PARTITIONS_PER_MULTI], done, fenced)

    def _write_part(
        self,
        writes: Sequence[StateWrite],
        done: Callable[[dict[TopicPartition, tuple[WriteOutcome, PartitionState]]], None],
        fenced: Callable[[], None],
    ) -> None:
        """All in one multi, or each in its own where one of them spoils it for the others."""

        def all_alike(outcome: WriteOutcome) -> None:
            done({write.partition: (outcome, write.state) for write in writes})

        def one_by_one() -> None:
            for write in writes:
                self._write_part([write], done, fenced)

        def on_multi(reply: ZkReply) -> None:
            if reply.ok:
                all_alike(WriteOutcome.ACCEPTED)
            elif reply.status is ZkStatus.UNKNOWN:
                all_alike(WriteOutcome.UNKNOWN)
            elif len(writes) > 1:
                one_by_one()
            else:
                self.check_epoch(fenced)
                all_alike(WriteOutcome.CONFLICT)

        operations = [self.epoch_check()]
        try:
            for write in writes:
                operations.extend(self._operations(write))
        except ZnodeFormatError as failure:
            if len(writes) > 1:
                one_by_one()
                return
            # It follows from what others wrote there: read again until that is mended.
            log.error("state of partition=%s not written: %s", writes[0].partition, failure)
            all_alike(WriteOutcome.CONFLICT)
            return
        self._metadata_store.multi(operations, on_multi)

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

    def epoch_check(self) -> ZkOp:
        """For a multi that only the present controller may do."""
        return ZkOp(
            kind=ZkOpKind.CHECK, path=ControllerEpochZNode.PATH, version=self._epoch_version
        )

    def check_epoch(self, fenced: Callable[[], None]) -> None:
        """After a multi that was refused: `fenced` when that was because of the epoch."""

        def on_known(is_current: bool | None) -> None:
            if is_current is False:
                fenced()

        self.is_current(on_known)

    def is_current(self, done: Callable[[bool | None], None]) -> None:
        """Whether no later controller was elected; None: ZooKeeper did not answer."""

        def on_reply(reply: ZkReply) -> None:
            if reply.is_absent:
                # Whoever is elected makes it anew.
                done(False)
            elif reply.ok and reply.stat is not None:
                done(reply.stat.version == self._epoch_version)
            else:
                done(None)

        self._metadata_store.exists(ControllerEpochZNode.PATH, on_reply)

    def delete_topic(
        self,
        topic: str,
        partitions: Sequence[int],
        done: Callable[[bool], None],
        fenced: Callable[[], None],
    ) -> None:
        """Remove a topic's nodes: those of its partitions first, then topic, settings and request
        in one multi, so that a topic made anew under that name loses nothing to the old one's end,
        also where nobody knows whether that has come. What others have made below them goes too.
        """
        czxid = self._may_be_gone.pop(topic, None)
        if czxid is None:
            self._delete_partitions(topic, partitions, done, fenced)
            return

        def on_found(present: dict[str, ZkStat] | None) -> None:
            if present is None:
                self._may_be_gone[topic] = czxid
                done(False)
                return
            node = present.get(path)
            # The request went with the node: one that is there now means the later topic.
            if node is not None and node.czxid != czxid and request not in present:
                done(True)
            else:
                self._delete_partitions(topic, partitions, done, fenced)

        path, request = TopicZNode.path(topic), DeleteTopicsZNode.topic_path(topic)
        self._which_exist((path, request), on_found)

    def _delete_partitions(
        self,
        topic: str,
        partitions: Sequence[int],
        done: Callable[[bool], None],
        fenced: Callable[[], None],
    ) -> None:
        guard = [self.epoch_check()]
        left = deque(
            path
            for partition in partitions
            for path in (
                PartitionStateZNode.path(topic, partition),
                PartitionStateZNode.partition_path(topic, partition),
            )
        )
        left.append(PartitionsZNode.path(topic))

        def failed(reply: ZkReply) -> None:
            if reply.status in (ZkStatus.BAD_VERSION, ZkStatus.NO_NODE):
                self.check_epoch(fenced)
            done(False)

        def next_one() -> None:
            if left:
                remove_subtree(
                    self._metadata_store,
                    left.popleft(),
                    lambda reply: next_one() if reply.ok else failed(reply),
                    guard=guard,
                )
            else:
                self._delete_heads(topic, MAX_CLEARINGS, done, failed)

        next_one()

    def _delete_heads(
        self,
        topic: str,
        clearings_left: int,
        done: Callable[[bool], None],
        failed: Callable[[ZkReply], None],
    ) -> None:
        guard = [self.epoch_check()]
        heads = (
            TopicZNode.path(topic),
            ConfigZNode.topic_path(topic),
            DeleteTopicsZNode.topic_path(topic),
        )

        def delete_all(present: dict[str, ZkStat] | None) -> None:
            if present is None:
                done(False)
                return
            if (node := present.get(TopicZNode.path(topic))) is not None:
                self._may_be_gone[topic] = node.czxid
            operations = [*guard, *map(_deletion, present)]
            self._metadata_store.multi(operations, lambda reply: on_heads(reply, operations))

        def on_heads(reply: ZkReply, operations: Sequence[ZkOp]) -> None:
            if reply.status is not ZkStatus.UNKNOWN:
                self._may_be_gone.pop(topic, None)
            if reply.ok:
                done(True)
            elif reply.status is ZkStatus.NOT_EMPTY and clearings_left:
                path = operations[reply.value].path
                remove_children(self._metadata_store, path, on_cleared, guard=guard)
            else:
                failed(reply)

        def on_cleared(reply: ZkReply) -> None:
            if reply.ok:
                self._delete_heads(topic, clearings_left - 1, done, failed)
            else:
                failed(reply)

        self._which_exist(heads, delete_all)

    def _which_exist(
        self, paths: Sequence[str], done: Callable[[dict[str, ZkStat] | None], None]
    ) -> None:
        """Those of them that are there, in the same order; None: ZooKeeper did not answer."""
        found: dict[str, ZkStat] = {}
        failed: list[str] = []

        def on_reply(path: str, reply: ZkReply) -> None:
            if reply.ok and reply.stat is not None:
                found[path] = reply.stat
            elif not reply.is_absent:
                failed.append(path)
            gather.one()

        gather = Gather(
            len(paths),
            lambda: done(
                None if failed else {path: found[path] for path in paths if path in found}
            ),
        )
        for path in paths:
            self._metadata_store.exists(
                path,
                lambda reply, path=path: on_reply(path, reply),  # type: ignore[misc]
            )


def _deletion(path: str) -> ZkOp:
    return ZkOp(kind=ZkOpKind.DELETE, path=path)


def _broker_info(broker_id: BrokerId, reply: ZkReply) -> BrokerInfo | None:
    assert reply.stat is not None
    try:
        node = BrokerIdZNode.decode(broker_id, reply.value)
    except ZnodeFormatError as failure:
        log.error("broker ignored: %s", failure)
        return None
    epoch = BrokerEpoch(reply.stat.czxid)
    return BrokerInfo(
        broker_id=broker_id,
        host=node.host,
        port=node.port,
        rack=node.rack,
        epoch=epoch,
        tail_lost_epoch=epoch if node.tail_lost_epoch == TAIL_LOST_NOW else node.tail_lost_epoch,
    )


def _partition_state(tp: TopicPartition, reply: ZkReply) -> PartitionState | None:
    assert reply.stat is not None
    try:
        node = PartitionStateZNode.decode(tp.topic, tp.partition, reply.value)
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
