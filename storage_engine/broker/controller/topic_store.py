"""The topics' nodes as one elected controller reads them, each with an id.

Rule: an id belongs to a node, told by the transaction that created it, for as long as that node
is there. A program that knows no ids takes the id out when it writes the node, and it is given
back: from what this controller has read before, or from the node of the topic's partitions, where
it is recorded with the creation of the topic's node. Another id would make all replicas put their
logs aside as those of an earlier topic. So an id is made up only for a topic that nobody has ever
led; and nobody hears of an id before ZooKeeper has it. Source: R-CTL5, R-CTL10, KIP-516.
"""

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from storage_engine.broker.controller.gather import Gather
from storage_engine.core.control.cluster_state import Reassignment, TopicInfo
from storage_engine.core.ports import MetadataStore, ZkReply, ZkStat, ZkStatus
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes import (
    ConfigZNode,
    PartitionStateZNode,
    PartitionsZNode,
    TopicZNode,
)

log = logging.getLogger(__name__)

Watch = Callable[[], None]

NO_ID = uuid.UUID(int=0)
"""Of a topic that has one which nobody remembers: replicas keep the one that they know."""

_CREATED_HERE = 0
"""Instead of the transaction that created a node which has not been read yet."""


@dataclass(slots=True)
class _Read:
    """What was read of one topic."""

    node: TopicZNode
    stat: ZkStat
    partitions: ZkReply | None = None
    config: ZkReply | None = None


@dataclass(slots=True)
class _Batch:
    """Topics that are read together."""

    read: dict[str, _Read] = field(default_factory=dict)
    found: dict[str, TopicInfo] = field(default_factory=dict)
    failed: bool = False
    """ZooKeeper did not answer for one of them."""


class TopicStore:
    """Topics, and which id each of them has."""

    def __init__(
        self, metadata_store: MetadataStore, *, unclean_default: Callable[[], bool]
    ) -> None:
        self._metadata_store = metadata_store
        self._unclean_default = unclean_default
        self._ids: dict[str, tuple[int, uuid.UUID]] = {}
        """Topic -> the transaction that created its node, and its id."""
        self._owners: dict[uuid.UUID, str] = {}
        self.unreadable: set[str] = set()
        """Topics that are there, but were left out because of what stands in their nodes."""

    def created(self, topic: str, topic_id: uuid.UUID) -> None:
        """This broker has just created it, or changed it: others may write it before it is read."""
        if topic not in self._ids and topic_id != NO_ID:
            self._own(topic, _CREATED_HERE, topic_id)

    def forget(self, topic: str) -> None:
        """It is gone."""
        _, topic_id = self._ids.pop(topic, (0, NO_ID))
        if self._owners.get(topic_id) == topic:
            del self._owners[topic_id]

    def _own(self, topic: str, created: int, topic_id: uuid.UUID) -> None:
        self.forget(topic)
        self._ids[topic] = created, topic_id
        self._owners[topic_id] = topic

    def read(
        self,
        topics: Sequence[str],
        watch_for: Callable[[str], Watch] | None,
        done: Callable[[dict[str, TopicInfo] | None], None],
    ) -> None:
        """Assignment, id and unclean setting of each; `done(None)`: could not be read, try again
        later."""
        batch = _Batch()

        def finish() -> None:
            done(None if batch.failed else batch.found)

        def identify() -> None:
            if batch.failed:
                finish()
                return
            self._refuse_copies(batch)
            gather = Gather(len(batch.read), finish)
            for topic, read in batch.read.items():
                self._identify(batch, topic, read, gather.one)

        gather = Gather(len(topics), identify)
        for topic in topics:
            watch = watch_for(topic) if watch_for is not None else None
            self._read_one(batch, topic, watch, gather.one)

    # --- reading one ---

    def _read_one(
        self, batch: _Batch, topic: str, watch: Watch | None, done: Callable[[], None]
    ) -> None:
        def on_topic(reply: ZkReply) -> None:
            if not reply.ok or reply.stat is None:
                if reply.is_absent:
                    self.forget(topic)
                    self.unreadable.discard(topic)
                else:
                    batch.failed = True
                done()
                return
            try:
                node = TopicZNode.decode(topic, reply.value)
            except ZnodeFormatError as failure:
                log.error("topic ignored: %s", failure)
                self.unreadable.add(topic)
                done()
                return
            read = batch.read[topic] = _Read(node=node, stat=reply.stat)
            both = Gather(2, done)
            self._metadata_store.get(
                PartitionsZNode.path(topic), lambda reply: on_more(read, "partitions", reply, both)
            )
            self._metadata_store.get(
                ConfigZNode.topic_path(topic), lambda reply: on_more(read, "config", reply, both)
            )

        def on_more(read: _Read, name: str, reply: ZkReply, both: Gather) -> None:
            if not reply.ok and not reply.is_absent:
                batch.failed = True
            setattr(read, name, reply)
            both.one()

        self._metadata_store.get(TopicZNode.path(topic), on_topic, watch)

    # --- ids ---

    def _refuse_copies(self, batch: _Batch) -> None:
        """Of two nodes with the same id the older one is the topic, and the other somebody's copy
        of it: told of both, clients that use ids would read or delete the one for the other. Which
        of them is served stays so for as long as its node holds the id."""
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

    def _identify(self, batch: _Batch, topic: str, read: _Read, done: Callable[[], None]) -> None:
        def identified(topic_id: uuid.UUID) -> None:
            if topic_id == NO_ID:
                _tell_lost_id(topic)
                self._doubt(topic, read)
            else:
                self._own(topic, read.stat.czxid, topic_id)
                self._record(topic, read, topic_id)
            self.unreadable.discard(topic)
            batch.found[topic] = _topic_info(
                read.node, topic_id, read.config, self._unclean_default()
            )
            done()

        def give(topic_id: uuid.UUID) -> None:
            def on_given(reply: ZkReply) -> None:
                if reply.ok:
                    identified(topic_id)
                elif reply.status in (ZkStatus.BAD_VERSION, ZkStatus.NO_NODE):
                    self._identify_again(batch, topic, done)
                else:
                    batch.failed = True
                    done()

            named = replace(read.node, topic_id=topic_id)
            path = TopicZNode.path(topic)
            self._metadata_store.set(path, named.encode(), read.stat.version, on_given)

        def on_led(led: bool | None) -> None:
            if led is None:
                batch.failed = True
                done()
            elif led:
                identified(NO_ID)
            else:
                give(uuid.uuid4())

        topic_id = self._id_of(topic, read)
        if topic_id is None:
            self._has_been_led(read.node, on_led)
        elif topic_id in (NO_ID, read.node.topic_id):
            identified(topic_id)
        else:
            give(topic_id)

    def _identify_again(self, batch: _Batch, topic: str, done: Callable[[], None]) -> None:
        """Somebody else wrote the node meanwhile."""
        del batch.read[topic]

        def read_again() -> None:
            read = batch.read.get(topic)
            if read is None:
                done()
            else:
                self._identify(batch, topic, read, done)

        self._read_one(batch, topic, None, read_again)

    def _id_of(self, topic: str, read: _Read) -> uuid.UUID | None:
        """What the node was known by before somebody wrote it, or else what it says, or what was
        recorded when it says nothing. NO_ID where these two differ: a controller of an earlier
        version may have given the one, and a program may have written the other. It stays so when
        the node says nothing any more."""
        created, topic_id = self._ids.get(topic, (None, None))
        if created in (read.stat.czxid, _CREATED_HERE):
            return topic_id
        said, record = _said_id(read), _record_of(topic, read)
        if record is None or said == record.topic_id:
            return said
        return record.topic_id if said is None and not record.is_doubted else NO_ID

    def _record(self, topic: str, read: _Read, topic_id: uuid.UUID) -> None:
        """Where it can't be written now, whoever reads the topic next does it."""
        record = PartitionsZNode(topic_id=topic_id, topic_czxid=read.stat.czxid)
        if _record_of(topic, read) != record:
            self._write_record(topic, read, record)

    def _doubt(self, topic: str, read: _Read) -> None:
        """Keep that the node has named another id than the record: a program may take it out."""
        record = _record_of(topic, read)
        if record is not None and not record.is_doubted:
            self._write_record(topic, read, replace(record, is_doubted=True))

    def _write_record(self, topic: str, read: _Read, record: PartitionsZNode) -> None:
        path, present = PartitionsZNode.path(topic), read.partitions
        if present is not None and present.ok and present.stat is not None:
            version = present.stat.version
            self._metadata_store.set(path, record.encode(), version, lambda _reply: None)
        else:
            self._metadata_store.create(path, record.encode(), lambda _reply: None)

    def _has_been_led(self, node: TopicZNode, done: Callable[[bool | None], None]) -> None:
        """Whether a partition has a state; None: ZooKeeper did not answer."""
        statuses: set[ZkStatus] = set()

        def on_reply(reply: ZkReply) -> None:
            statuses.add(reply.status)
            gather.one()

        def finish() -> None:
            led = ZkStatus.OK in statuses
            done(led if led or statuses <= {ZkStatus.NO_NODE, ZkStatus.ILLEGAL} else None)

        gather = Gather(len(node.assignment), finish)
        for partition in node.assignment:
            self._metadata_store.exists(PartitionStateZNode.path(node.topic, partition), on_reply)


def _tell_lost_id(topic: str) -> None:
    log.error(
        "topic %s has no topic_id that is sure: %s holds none and nobody recorded it, or %s records"
        " another, or one that is doubted; until both say the same its replicas keep what they"
        " have, and clients can't use its id: write that of its replicas' partition.metadata into"
        " the former, and empty the latter",
        topic, TopicZNode.path(topic), PartitionsZNode.path(topic),
    )  # fmt: skip


def _said_id(read: _Read) -> uuid.UUID | None:
    """What the node says; zeros say nothing."""
    topic_id = read.node.topic_id
    return topic_id if topic_id is not None and topic_id.int else None


def _record_of(topic: str, read: _Read) -> PartitionsZNode | None:
    """What the partitions' node says, if it means this node of the topic."""
    reply = read.partitions
    if reply is None or not reply.ok or not reply.value:
        return None
    try:
        record = PartitionsZNode.decode(topic, reply.value)
    except ZnodeFormatError as failure:
        log.warning("recorded topic id ignored: %s", failure)
        return None
    return record if record.topic_czxid == read.stat.czxid else None


def _topic_info(
    node: TopicZNode, topic_id: uuid.UUID, config: ZkReply | None, unclean_default: bool
) -> TopicInfo:
    unclean = unclean_default
    if config is not None and config.ok:
        try:
            path = ConfigZNode.topic_path(node.topic)
            value = ConfigZNode.decode(path, config.value).config.get(
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
    """What of a topic is on the move."""
    return {
        partition: Reassignment(original=node.original_replicas[partition], target=target)
        for partition, target in node.target_replicas.items()
    }
