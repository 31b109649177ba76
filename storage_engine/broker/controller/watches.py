"""The controller's eyes: sets the watches, loads everything, and turns what fires into events.

Rule: a watch is set again in the same read that answers it, so that nothing between two reads is
missed; a read that fails is repeated. Source: R-CTL5, R-CTL6, R-CTL10; document 001 (controller
failover, steps 2 to 7 and 12).
"""

import logging
from collections.abc import Callable, Iterable
from uuid import UUID

from storage_engine.broker.controller.gather import Gather
from storage_engine.broker.controller.store import ControllerStore
from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState, TopicInfo
from storage_engine.core.control.controller_events import (
    BrokerReportsFailures,
    BrokersChanged,
    Event,
    Loaded,
    TopicDeletionRequested,
    TopicsRead,
)
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import MetadataStore, Scheduler, ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.zookeeper.admin_znodes import (
    DeleteTopicsZNode,
    IsrChangeZNode,
    LogDirEventZNode,
)
from storage_engine.zookeeper.subtree import remove_subtree
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)

RETRY_MS = 500
UNREADABLE_MS = 2_000
"""Before brokers are read again of which nothing could be made out."""

TOPICS_PER_MULTI = 100
"""Of a request that names very many."""

BROKERS_WATCH_FIRED = "watch fired: brokers came or went"
"""How the log says when ZooKeeper told of it: failovers are timed from there."""


class ControllerWatches:
    """Watches and loading of one controller epoch."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        store: ControllerStore,
        scheduler: Scheduler,
        *,
        submit: Callable[[Event], None],
        reread: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self._metadata_store = metadata_store
        self._store = store
        self._scheduler = scheduler
        self._submit = submit
        self._reread = reread
        self._closed = False
        self.loaded = False
        self._watched: set[str] = set()
        self._known: set[str] = set()
        """Topics that the controller has been told of."""
        self._generations: dict[str, int] = {}
        self._early_isr_changes: set[TopicPartition] = set()
        self._reread_once_loaded: set[str] = set()
        self._brokers: dict[BrokerId, BrokerInfo] | None = None
        self._topics: dict[str, TopicInfo] | None = None
        self._reading = 0
        """Reads under way of topics of which nothing is known yet."""
        self._states: dict[TopicPartition, PartitionState | None] = {}
        """Of all partitions whose state was read, None where there is none that can be read."""
        self._reading_states = False
        self._deleting: tuple[str, ...] | None = None
        self._notices_due = False
        """Notices of failures will be listed again."""

    def start(self) -> None:
        self._read_brokers()
        self._list_topics()
        self._read_deletions()
        self._read_isr_changes()
        self._read_failure_notices()

    def close(self) -> None:
        self._closed = True

    def _again(self, work: Callable[[], None]) -> None:
        def run() -> None:
            if not self._closed:
                work()

        self._scheduler.call_later(RETRY_MS, run)

    def _guarded(self, name: str, work: Callable[[], None]) -> Callable[[], None]:
        """A watch: of all that were set under a name, only the newest is heard."""
        generation = self._generations.get(name, 0) + 1
        self._generations[name] = generation

        def run() -> None:
            if not self._closed and self._generations.get(name) == generation:
                work()

        return run

    # --- brokers ---

    def _brokers_came_or_went(self) -> None:
        log.info(BROKERS_WATCH_FIRED)
        self._read_brokers()

    def _read_brokers(self) -> None:
        def done(brokers: dict[BrokerId, BrokerInfo] | None) -> None:
            if self._closed:
                return
            if brokers is None:
                self._again(self._read_brokers)
                return
            self._brokers = brokers
            if self._store.unreadable_brokers:
                # Its broker will set that right, and nobody watches what stands in the node.
                self._scheduler.call_later(
                    UNREADABLE_MS, self._guarded("unreadable brokers", self._read_brokers)
                )
            if self.loaded:
                self._submit(BrokersChanged(brokers=brokers))
            else:
                self._finish_loading()

        self._store.read_brokers(self._guarded("brokers", self._brokers_came_or_went), done)

    # --- topics ---

    def _list_topics(self) -> None:
        def listed(topics: list[str] | None) -> None:
            if self._closed:
                return
            if topics is None:
                self._again(self._list_topics)
                return
            new = [topic for topic in topics if topic not in self._watched]
            if self.loaded or self._topics is None:
                self._read_topics(new)
            else:
                # Nobody leads them yet. Where others make topics time and again, loading is not to
                # wait for the last of them.
                self._reread_once_loaded.update(new)

        self._store.list_topics(self._guarded("topics", self._list_topics), listed)

    def _read_topics(self, topics: list[str]) -> None:
        if not topics and (self._topics is not None or self._reading):
            return
        self._watched.update(topics)
        # Others are told again once everything is loaded: where somebody writes a topic time and
        # again, loading is not to wait for the last of it.
        is_awaited = not set(topics) <= (self._topics or {}).keys() or not topics
        self._reading += is_awaited
        self._read_all_of(topics, is_awaited=is_awaited)

    def _read_all_of(self, topics: list[str], *, is_awaited: bool) -> None:
        def done(found: dict[str, TopicInfo] | None) -> None:
            if self._closed:
                return
            if found is None:
                self._again(lambda: self._read_all_of(topics, is_awaited=is_awaited))
                return
            self._reading -= is_awaited
            # One that is gone may come again under the same name.
            self._watched.difference_update(topic for topic in topics if topic not in found)
            if self.loaded:
                self._tell(topics, found)
                return
            before = self._topics or {}
            for topic, info in found.items():
                if topic in before and before[topic].topic_id != info.topic_id:
                    # Made again: what was read is of the old one.
                    for tp in [tp for tp in self._states if tp.topic == topic]:
                        del self._states[tp]
            self._topics = {**before, **found}
            self._load_states()

        self._store.topics.read(topics, self._topic_watch, done)

    def _tell(self, topics: Iterable[str], found: dict[str, TopicInfo]) -> None:
        """What became of reading these."""
        self._known.update(found)
        missing = set(topics) - found.keys()
        unreadable = frozenset(missing & self._store.topics.unreadable)
        absent = frozenset(missing - unreadable)
        self._submit(TopicsRead(topics=found, unreadable=unreadable, absent=absent))

    def _topic_watch(self, topic: str) -> Callable[[], None]:
        return self._guarded(f"topic {topic}", lambda: self._read_topics([topic]))

    def watch_topic(self, topic: str, topic_id: UUID) -> None:
        """A topic that this controller wrote itself: watch it from now on."""
        self._store.topics.created(topic, topic_id)
        if topic not in self._watched:
            # Others may have changed it already, before there was a watch.
            self._read_topics([topic])

    def learn_topics(self, topics: Iterable[str], then: Callable[[], None]) -> None:
        """`then`, when each of these is known that exists: the watch on all may not have told of
        one yet, or it is just being read."""
        unknown = sorted(set(topics) - self._known)
        if not unknown:
            then()
            return

        def done(found: dict[str, TopicInfo] | None) -> None:
            if self._closed:
                return
            if found is None:
                self._again(lambda: self.learn_topics(topics, then))
                return
            self._watched.update(found)
            self._tell(unknown, found)
            then()

        self._store.topics.read(unknown, self._topic_watch, done)

    def reread_topics(self, topics: Iterable[str] | None) -> None:
        """Topics, or all that are watched (None), may have other settings."""
        again = self._watched.intersection(self._watched if topics is None else topics)
        if not self.loaded:
            # They may have been read before the change.
            self._reread_once_loaded.update(again)
        elif again:
            self._read_topics(sorted(again))

    def topic_gone(self, topic: str) -> None:
        """A topic that was deleted. It may have been made anew already, while the list of topics
        still held it for known: look again."""
        self._watched.discard(topic)
        self._known.discard(topic)
        self._store.topics.forget(topic)
        self._generations.pop(f"topic {topic}", None)
        self._list_topics()

    def _load_states(self) -> None:
        """Of all topics: with a part of them, brokers would be told to stop what is in the others.
        What was read before something changed is not read again."""
        if self.loaded or self._topics is None or self._reading or self._reading_states:
            return
        partitions = [
            tp
            for topic, info in self._topics.items()
            for number in info.assignment
            if (tp := TopicPartition(topic, number)) not in self._states
        ]

        def done(states: dict[TopicPartition, PartitionState | None] | None) -> None:
            self._reading_states = False
            if self._closed:
                return
            if states is None:
                self._again(self._load_states)
                return
            self._states.update((tp, states.get(tp)) for tp in partitions)
            self._finish_loading()

        if partitions:
            self._reading_states = True
            self._store.read_states(partitions, done)
        else:
            self._finish_loading()

    def _finish_loading(self) -> None:
        if self.loaded or self._brokers is None or self._topics is None:
            return
        if self._reading or self._reading_states or self._deleting is None:
            return
        if any(
            TopicPartition(topic, number) not in self._states
            for topic, info in self._topics.items()
            for number in info.assignment
        ):
            self._load_states()
            return
        states = {tp: state for tp, state in self._states.items() if state is not None}
        self.loaded = True
        self._known.update(self._topics)
        deleting = [topic for topic in self._deleting if topic in self._topics]
        log.info(
            "controller loaded brokers=%s topics=%d partitions=%d",
            sorted(self._brokers),
            len(self._topics),
            len(states),
        )
        self._submit(
            Loaded(
                brokers=self._brokers,
                topics=self._topics,
                states=states,
                deleting=tuple(deleting),
                unreadable=frozenset(self._store.topics.unreadable),
            )
        )
        if young := tuple(topic for topic in self._deleting if topic not in self._topics):
            self._delete(young)
        if self._early_isr_changes:
            self._reread(sorted(self._early_isr_changes))
            self._early_isr_changes.clear()
        if self._reread_once_loaded:
            self._read_topics(sorted(self._reread_once_loaded))
            self._reread_once_loaded.clear()

    # --- deletions: one JSON, or a child per topic ---

    def _read_deletions(self) -> None:
        def on_data(reply: ZkReply) -> None:
            if self._closed:
                return
            if reply.status is ZkStatus.UNKNOWN:
                self._again(self._read_deletions)
                return
            if not reply.ok:
                # Not there: wait for its creation.
                self._watch_for_deletions()
                self._on_deletions(())
                return
            if reply.value and reply.stat is not None and self._turn_json(reply):
                # The watch on it tells.
                return
            self._metadata_store.children(
                DeleteTopicsZNode.PATH,
                on_children,
                self._guarded("deletions", self._read_deletions),
            )

        def on_children(reply: ZkReply) -> None:
            if self._closed:
                return
            if reply.status is ZkStatus.UNKNOWN:
                self._again(self._read_deletions)
                return
            self._on_deletions(tuple(reply.value) if reply.ok else ())

        # A watch on each form: the JSON may be set without a change of the children.
        self._metadata_store.get(
            DeleteTopicsZNode.PATH,
            on_data,
            self._guarded("deletions as JSON", self._read_deletions),
        )

    def _turn_json(self, reply: ZkReply) -> bool:
        """Make children of the topics that a JSON names, before anything is done for them: a child
        goes in the same multi as its topic, and what would remain of the JSON would delete a later
        topic of that name. False when the JSON names none."""
        assert reply.stat is not None
        try:
            node = DeleteTopicsZNode.decode(reply.value)
        except ZnodeFormatError as failure:
            log.error("deletion ignored: %s", failure)
            return False
        for problem in node.problems:
            log.error("deletion ignored: %s", problem)
        if not node.topics:
            return False
        version = reply.stat.version
        part, rest = node.topics[:TOPICS_PER_MULTI], node.topics[TOPICS_PER_MULTI:]
        data = DeleteTopicsZNode(topics=rest).encode() if rest else b""

        def on_children(children: ZkReply) -> None:
            if self._closed:
                return
            if not children.ok:
                self._again(self._read_deletions)
                return
            creations = [
                ZkOp(kind=ZkOpKind.CREATE, path=DeleteTopicsZNode.topic_path(topic))
                for topic in dict.fromkeys(part)
                if topic not in children.value
            ]
            emptied = ZkOp(
                kind=ZkOpKind.SET, path=DeleteTopicsZNode.PATH, data=data, version=version
            )
            self._metadata_store.multi([self._store.epoch_check(), *creations, emptied], on_turned)

        def on_turned(turned: ZkReply) -> None:
            if not self._closed and not turned.ok:
                self._again(self._read_deletions)

        self._metadata_store.children(DeleteTopicsZNode.PATH, on_children)
        return True

    def _watch_for_deletions(self) -> None:
        def on_reply(reply: ZkReply) -> None:
            if not self._closed and reply.ok:
                self._read_deletions()
            elif not self._closed and reply.status is ZkStatus.UNKNOWN:
                self._again(self._watch_for_deletions)

        self._metadata_store.exists(
            DeleteTopicsZNode.PATH, on_reply, self._guarded("deletions", self._read_deletions)
        )

    def _on_deletions(self, topics: tuple[str, ...]) -> None:
        if self.loaded:
            if topics:
                self._delete(topics)
            return
        self._deleting = topics
        self._finish_loading()

    def _delete(self, topics: tuple[str, ...]) -> None:
        self.learn_topics(topics, lambda: self._submit(TopicDeletionRequested(topics=topics)))

    def drop_request(self, topic: str) -> None:
        """Take a request away."""
        path = DeleteTopicsZNode.topic_path(topic)
        # One that others have made nodes below would delete a later topic of that name.
        remove_subtree(self._metadata_store, path, lambda _reply: None)

    # --- ISR changes ---

    def _read_isr_changes(self) -> None:
        def on_children(reply: ZkReply) -> None:
            if self._closed:
                return
            if not reply.ok:
                self._again(self._read_isr_changes)
                return
            self._take_isr_changes(reply.value)

        self._metadata_store.children(
            IsrChangeZNode.PARENT, on_children, self._guarded("isr", self._read_isr_changes)
        )

    def _take_isr_changes(self, children: list[str]) -> None:
        changed: set[TopicPartition] = set()

        def on_change(child: str, reply: ZkReply) -> None:
            if reply.ok:
                try:
                    node = IsrChangeZNode.decode(child, reply.value)
                except ZnodeFormatError as failure:
                    log.error("ISR change ignored: %s", failure)
                else:
                    changed.update(node.partitions)
                    for problem in node.problems:
                        log.error("ISR change ignored: %s", problem)
                self._metadata_store.delete(IsrChangeZNode.path(child), -1, lambda _reply: None)
            gather.one()

        def done() -> None:
            if self._closed or not changed:
                return
            if self.loaded:
                self._reread(sorted(changed))
            else:
                # The states may have been read before these changes.
                self._early_isr_changes.update(changed)

        gather = Gather(len(children), done)
        for child in children:
            self._metadata_store.get(
                IsrChangeZNode.path(child),
                lambda reply, child=child: on_change(child, reply),  # type: ignore[misc]
            )

    # --- replicas that failed (KIP-112) ---

    def _read_failure_notices(self) -> None:
        def on_children(reply: ZkReply) -> None:
            if self._closed:
                return
            if not reply.ok:
                self._list_notices_later()
                return
            for child in reply.value:
                self._metadata_store.get(
                    LogDirEventZNode.path(child),
                    lambda reply, child=child: self._on_failure_notice(child, reply),  # type: ignore[misc]
                )

        self._metadata_store.children(
            LogDirEventZNode.PARENT,
            on_children,
            self._guarded("failure notices", self._read_failure_notices),
        )

    def _list_notices_later(self) -> None:
        """Once, however many of them could not be read."""

        def list_again() -> None:
            self._notices_due = False
            self._read_failure_notices()

        if not self._notices_due:
            self._notices_due = True
            self._again(list_again)

    def _on_failure_notice(self, child: str, reply: ZkReply) -> None:
        if self._closed:
            return
        if reply.status is ZkStatus.UNKNOWN:
            self._list_notices_later()
        if not reply.ok:
            return
        self._metadata_store.delete(LogDirEventZNode.path(child), -1, lambda _reply: None)
        try:
            broker = LogDirEventZNode.decode(child, reply.value).broker_id
        except ZnodeFormatError as failure:
            log.error("notice of a failed folder ignored: %s", failure)
            return
        # While loading it is not needed: after that every broker is told everything.
        if self.loaded:
            self._submit(BrokerReportsFailures(broker=broker))
