"""The topics' nodes as one elected controller reads them, each with an id.

An id belongs to a node, known by the transaction that created it, for as long as that node is
there. A program that knows no ids drops the id when it writes the node. The controller restores it:
from what it has read before, or from the node of the topic's partitions, which records it with the
creation of the topic's node. With another id all replicas would put their logs aside as those of an
earlier topic. So a new id is given only to a topic that no broker has ever led, and no id is
published before ZooKeeper has it. Source: R-CTL5, R-CTL10, KIP-516.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from storage_engine.core.control.cluster_state import Reassignment, TopicInfo
from storage_engine.core.ports import MetadataStore, ZkReply, ZkStat, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, Watch, ZookeeperFlows
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode
from storage_engine.zookeeper.znodes.topic_znodes import (
    PartitionStateZNode,
    PartitionsZNode,
    TopicZNode,
)

log = logging.getLogger(__name__)

NO_ID = uuid.UUID(int=0)
"""The id of a topic whose id is unknown: replicas keep the one that they have."""

_CREATED_HERE = 0
"""In place of the creation transaction of a node that has not been read yet."""


@dataclass(slots=True)
class _Read:
    """The nodes of one topic, as they were read."""

    node: TopicZNode
    stat: ZkStat
    partitions: ZkReply
    config: ZkReply


@dataclass(slots=True)
class _Batch:
    """Topics that are read together."""

    read: dict[str, _Read] = field(default_factory=dict)
    found: dict[str, TopicInfo] = field(default_factory=dict)
    failed: bool = False
    """Whether a read of one of them had no answer."""


class TopicStore:
    """The topics with their ids."""

    def __init__(
        self, metadata_store: MetadataStore, flows: Flows, *, unclean_default: Callable[[], bool]
    ) -> None:
        self._metadata_store = metadata_store
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = flows
        self._unclean_default = unclean_default
        self._ids: dict[str, tuple[int, uuid.UUID]] = {}
        """Topic -> the transaction that created its node, and its id."""
        self._owners: dict[uuid.UUID, str] = {}
        self.unreadable: set[str] = set()
        """Existing topics that were left out because of the content of their nodes."""

    def created(self, topic: str, topic_id: uuid.UUID) -> None:
        """Note that this broker has just created or changed the topic: others may write its znode
        before it is read."""
        if topic not in self._ids and topic_id != NO_ID:
            self._own(topic, _CREATED_HERE, topic_id)

    def forget(self, topic: str) -> None:
        """Drop what is cached of a deleted topic."""
        _, topic_id = self._ids.pop(topic, (0, NO_ID))
        if self._owners.get(topic_id) == topic:
            del self._owners[topic_id]

    def _own(self, topic: str, created: int, topic_id: uuid.UUID) -> None:
        self.forget(topic)
        self._ids[topic] = created, topic_id
        self._owners[topic_id] = topic

    def read(
        self, topics: Iterable[str], watch_for: Callable[[str], Watch]
    ) -> Flow[dict[str, TopicInfo] | None]:
        """Read assignment, id and unclean setting of each readable topic; None: ZooKeeper did not
        answer all reads, try again later."""
        batch = _Batch()
        wanted = list(topics)
        watches = {TopicZNode.path(topic): watch_for(topic) for topic in wanted}
        yield from self._read_nodes(batch, wanted, watches)
        if not batch.failed:
            self._refuse_copies(batch)
            identities = [self._identify(batch, topic) for topic in list(batch.read)]
            yield from self._flows.together(identities)
        return None if batch.failed else batch.found

    def _read_nodes(
        self, batch: _Batch, topics: Iterable[str], watches: Mapping[str, Watch]
    ) -> Flow[None]:
        paths = {TopicZNode.path(topic): topic for topic in topics}
        replies = yield from self._zookeeper.get_each(paths, watches)
        nodes: dict[str, tuple[TopicZNode, ZkStat]] = {}
        for path, reply in replies.items():
            topic = paths[path]
            if reply.ok and reply.stat is not None:
                node = self._decoded(topic, reply)
                if node is not None:
                    nodes[topic] = node, reply.stat
            elif reply.is_absent:
                self.forget(topic)
                self.unreadable.discard(topic)
            else:
                batch.failed = True
        beside = [
            f(topic) for topic in nodes for f in (PartitionsZNode.path, ConfigZNode.topic_path)
        ]
        found = yield from self._zookeeper.get_each(beside)
        batch.failed |= any(not reply.ok and not reply.is_absent for reply in found.values())
        for topic, (node, stat) in nodes.items():
            batch.read[topic] = _Read(
                node=node,
                stat=stat,
                partitions=found[PartitionsZNode.path(topic)],
                config=found[ConfigZNode.topic_path(topic)],
            )

    def _decoded(self, topic: str, reply: ZkReply) -> TopicZNode | None:
        try:
            return TopicZNode.decode(topic, reply.data)
        except ZnodeFormatError as failure:
            log.error("topic ignored: %s", failure)
            self.unreadable.add(topic)
            return None

    # --- ids ---

    def _refuse_copies(self, batch: _Batch) -> None:
        """Leave copies out: of two nodes with the same id the older one is the topic, the other a
        copy of it. If clients that use ids saw both, they would read or delete one for the other.
        The choice is stable for as long as the chosen node holds the id."""
        claimed: dict[uuid.UUID, str] = {}
        for topic, read in sorted(batch.read.items(), key=lambda each: each[1].stat.czxid):
            topic_id = self._id_of(topic, read)
            if topic_id is None or topic_id == NO_ID:
                continue
            owner = claimed.get(topic_id) or self._owners.get(topic_id, topic)
            now = batch.read.get(owner)
            if owner == topic or (now is not None and self._id_of(owner, now) != topic_id):
                claimed[topic_id] = topic
                continue
            log.error(
                "topic ignored: %s has the topic_id of %s, of which it seems to be a copy; take"
                " topic_id out of it, or remove it", TopicZNode.path(topic), owner,
            )  # fmt: skip
            del batch.read[topic]
            self.unreadable.add(topic)

    def _identify(self, batch: _Batch, topic: str) -> Flow[None]:
        """Find the topic with its id in ZooKeeper, which gets one if need be."""
        while topic in batch.read:
            read = batch.read[topic]
            topic_id = self._id_of(topic, read)
            if topic_id is None:
                has_been_led = yield from self._has_been_led(read.node)
                if has_been_led is None:
                    batch.failed = True
                    return
                topic_id = NO_ID if has_been_led else uuid.uuid4()
            if topic_id in (NO_ID, read.node.topic_id):
                self._found(batch, topic, topic_id)
                return
            data = replace(read.node, topic_id=topic_id).encode()
            given = yield from self._zookeeper.set(TopicZNode.path(topic), data, read.stat.version)
            if given.ok:
                self._found(batch, topic, topic_id)
                return
            if given.status not in (ZkStatus.BAD_VERSION, ZkStatus.NO_NODE):
                batch.failed = True
                return
            # The node was written by others meanwhile.
            del batch.read[topic]
            yield from self._read_nodes(batch, [topic], {})

    def _found(self, batch: _Batch, topic: str, topic_id: uuid.UUID) -> None:
        read = batch.read[topic]
        if topic_id == NO_ID:
            _log_lost_id(topic)
            self._doubt(topic, read)
        else:
            self._own(topic, read.stat.czxid, topic_id)
            self._record(topic, read, topic_id)
        self.unreadable.discard(topic)
        batch.found[topic] = _topic_info(read.node, topic_id, read.config, self._unclean_default())

    def _id_of(self, topic: str, read: _Read) -> uuid.UUID | None:
        """The id that the node had before others wrote it, otherwise the one in the node, or the
        recorded one when the node has none. NO_ID where these two differ: a program may have
        written either; it stays so when the id is taken out of the node again."""
        created, topic_id = self._ids.get(topic, (None, None))
        if created in (read.stat.czxid, _CREATED_HERE):
            return topic_id
        said, record = _said_id(read), _record_of(topic, read)
        if record is None or said == record.topic_id:
            return said
        return record.topic_id if said is None and not record.is_doubted else NO_ID

    def _record(self, topic: str, read: _Read, topic_id: uuid.UUID) -> None:
        """Record the id; if that fails now, the next reader of the topic does it."""
        record = PartitionsZNode(topic_id=topic_id, topic_czxid=read.stat.czxid)
        if _record_of(topic, read) != record:
            self._write_record(topic, read, record)

    def _doubt(self, topic: str, read: _Read) -> None:
        """Record that the znode had another id than the record: an administrator's program may
        remove that id."""
        record = _record_of(topic, read)
        if record is not None and not record.is_doubted:
            self._write_record(topic, read, replace(record, is_doubted=True))

    def _write_record(self, topic: str, read: _Read, record: PartitionsZNode) -> None:
        path, present = PartitionsZNode.path(topic), read.partitions
        if present.ok and present.stat is not None:
            version = present.stat.version
            self._metadata_store.set(path, record.encode(), version, lambda _reply: None)
        else:
            self._metadata_store.create(path, record.encode(), lambda _reply: None)

    def _has_been_led(self, node: TopicZNode) -> Flow[bool | None]:
        """Whether a partition has a state; None: ZooKeeper did not answer."""
        paths = [PartitionStateZNode.path(node.topic, number) for number in node.assignment]
        replies = yield from self._zookeeper.exist_each(paths)
        if any(reply.ok for reply in replies.values()):
            return True
        return False if all(reply.is_absent for reply in replies.values()) else None


def _log_lost_id(topic: str) -> None:
    log.error(
        "topic %s has no certain topic_id: %s has none and no record of it exists, or %s records"
        " another, or one that is in doubt; until both agree its replicas keep the id that they"
        " have, and clients can't use its id: write that of its replicas' partition.metadata into"
        " the former, and empty the latter",
        topic, TopicZNode.path(topic), PartitionsZNode.path(topic),
    )  # fmt: skip


def _said_id(read: _Read) -> uuid.UUID | None:
    """The id in the node; None where it has none, or zeros."""
    topic_id = read.node.topic_id
    return topic_id if topic_id is not None and topic_id.int else None


def _record_of(topic: str, read: _Read) -> PartitionsZNode | None:
    """The record in the partitions' node, if it belongs to this node of the topic."""
    reply = read.partitions
    if not reply.ok or not reply.data:
        return None
    try:
        record = PartitionsZNode.decode(topic, reply.data)
    except ZnodeFormatError as failure:
        log.warning("recorded topic id ignored: %s", failure)
        return None
    return record if record.topic_czxid == read.stat.czxid else None


def _topic_info(
    node: TopicZNode, topic_id: uuid.UUID, config: ZkReply, unclean_default: bool
) -> TopicInfo:
    unclean = unclean_default
    if config.ok:
        try:
            path = ConfigZNode.topic_path(node.topic)
            value = ConfigZNode.decode(path, config.data).config.get(
                "unclean.leader.election.enable"
            )
            unclean = unclean_default if value is None else value == "true"
        except ZnodeFormatError as failure:
            log.error("settings ignored: %s", failure)
    return TopicInfo(
        topic=node.topic,
        topic_id=topic_id,
        assignment=dict(node.assignment),
        unclean_election=unclean,
        reassignments=reassignments_of(node),
    )


def reassignments_of(node: TopicZNode) -> dict[int, Reassignment]:
    """The reassignments under way: partition -> original and target replicas."""
    return {
        partition: Reassignment(original=node.original_replicas[partition], target=target)
        for partition, target in node.target_replicas.items()
    }
