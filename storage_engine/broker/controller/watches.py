"""Watches brokers and topics for the controller, loads everything, and submits what has changed.

A watch is set again in the same read that answers it, so that nothing between two reads is missed;
a read that fails is repeated. Nothing is submitted before all is loaded. Source: R-CTL5, R-CTL6,
R-CTL10.

Reads the nodes by which brokers notify the controller of changed ISRs and failed replicas.

A notice is removed once it was read, and read again where ZooKeeper did not answer; one that comes
twice or late does no harm, since it only says what to read. Source: R-CTL5, KIP-112.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from uuid import UUID

from storage_engine.broker.controller.admin_requests import DeletionRequests
from storage_engine.broker.controller.store import ControllerFence, ControllerStore
from storage_engine.broker.controller.topic_store import TopicStore
from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState, TopicInfo
from storage_engine.core.control.controller_events import (
    BrokerReportsFailures,
    BrokersChanged,
    Event,
    Loaded,
    TopicDeletionRequested,
    TopicsRead,
)
from storage_engine.core.features import SUPPORTED, FinalizedFeatures, unsupported_feature
from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply, ZkStatus
from storage_engine.zookeeper.admin_znodes import IsrChangeZNode, LogDirEventZNode
from storage_engine.zookeeper.flow import Flow, Flows, NewestWatches, Watch, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)


RETRY_MS = 500


def _ignore(_reply: ZkReply) -> None:
    """Do nothing: a notice that was not removed is read again with the next one."""


class Notices:
    """The notices of one kind: the children of a node."""

    def __init__(
        self,
        parent: str,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        flows: Flows,
        watches: NewestWatches,
        *,
        on_notices: Callable[[Mapping[str, bytes]], None],
    ) -> None:
        """`on_notices` receives the contents of all notices by name."""
        self._parent = parent
        self._metadata_store = metadata_store
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = flows
        self._watches = watches
        self._on_notices = on_notices

    def read(self) -> None:
        self._flows.start(self._read())

    def _read(self) -> Flow[None]:
        watch = self._watches.newest(self._parent, self.read)
        listed = yield from self._zookeeper.children(self._parent, watch)
        names = listed.children if listed.ok else ()
        paths = {f"{self._parent}/{name}": name for name in names}
        replies = yield from self._zookeeper.get_each(paths)
        found = {paths[path]: reply.data for path, reply in replies.items() if reply.ok}
        for name in found:
            self._metadata_store.delete(f"{self._parent}/{name}", -1, _ignore)
        if found:
            self._on_notices(found)
        if not listed.ok or any(reply.status is ZkStatus.UNKNOWN for reply in replies.values()):
            # Once, however many reads were not answered.
            again = self._watches.newest(f"{self._parent}, later", self.read)
            self._scheduler.call_later(RETRY_MS, again)


def changed_partitions(notices: Mapping[str, bytes]) -> list[TopicPartition]:
    """The partitions whose leaders have changed the ISR."""
    changed: set[TopicPartition] = set()
    for name, data in notices.items():
        try:
            node = IsrChangeZNode.decode(name, data)
        except ZnodeFormatError as failure:
            log.error("ISR change ignored: %s", failure)
            continue
        for problem in node.problems:
            log.error("ISR change ignored: %s", problem)
        changed.update(node.partitions)
    return sorted(changed)


def failed_brokers(notices: Mapping[str, bytes]) -> list[BrokerId]:
    """The brokers with failed replicas; their notices do not name these."""
    brokers = []
    for name, data in notices.items():
        try:
            brokers.append(LogDirEventZNode.decode(name, data).broker_id)
        except ZnodeFormatError as failure:
            log.error("notice of a failed log dir ignored: %s", failure)
    return brokers


UNREADABLE_MS = 2_000
"""Pause before registrations that could not be decoded are read again."""

BROKERS_WATCH_FIRED = "watch fired: brokers came or went"
"""The log line from which failovers are timed."""


class _Gone:
    """The topics that were deleted since a read of topics began."""

    __slots__ = ("topics",)

    def __init__(self) -> None:
        self.topics: set[str] = set()


class ControllerWatches:
    """Watches and loading of one controller epoch."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        store: ControllerStore,
        topics: TopicStore,
        scheduler: Scheduler,
        flows: Flows,
        fence: ControllerFence,
        *,
        submit: Callable[[Event], None],
        reread: Callable[[Iterable[TopicPartition]], None],
        finalized: Callable[[], FinalizedFeatures],
    ) -> None:
        """`finalized`: the levels of features that every broker has to support."""
        self._store = store
        self._finalized = finalized
        self._unfit: frozenset[tuple[BrokerId, BrokerEpoch]] = frozenset()
        """The registered brokers that do not support them, as they were logged last."""
        self._topic_store = topics
        self._scheduler = scheduler
        self._flows = flows
        self._submit = submit
        self._reread = reread
        self._watches = NewestWatches(flows)
        common = metadata_store, scheduler, flows, self._watches
        self._deletion_requests = DeletionRequests(*common, fence, on_requests=self._on_deletions)
        self._isr_changes = Notices(IsrChangeZNode.PARENT, *common, on_notices=self._on_isr_changes)
        self._failures = Notices(LogDirEventZNode.PARENT, *common, on_notices=self._on_failures)
        self.loaded = False
        self._watched: set[str] = set()
        self._known: set[str] = set()
        """Topics that were submitted to the controller."""
        self._reads: list[_Gone] = []
        """An entry for each read of topics under way."""
        self._early_isr_changes: set[TopicPartition] = set()
        self._reread_once_loaded: set[str] = set()
        self._brokers: dict[BrokerId, BrokerInfo] | None = None
        self._topics: dict[str, TopicInfo] | None = None
        self._reading = 0
        """The number of reads under way of topics that are still unknown."""
        self._states: dict[TopicPartition, PartitionState | None] = {}
        """The states that were read; None for a partition without a readable state."""
        self._reading_states = False
        self._deleting: tuple[str, ...] | None = None

    def start(self) -> None:
        self._flows.start(self._read_brokers())
        self._list_topics()
        self._deletion_requests.read()
        self._isr_changes.read()
        self._failures.read()

    # --- brokers ---

    def _brokers_came_or_went(self) -> None:
        log.info(BROKERS_WATCH_FIRED)
        self._flows.start(self._read_brokers())

    def _read_brokers(self) -> Flow[None]:
        while True:
            watch = self._watches.newest("brokers", self._brokers_came_or_went)
            brokers = yield from self._store.read_brokers(watch)
            if brokers is not None:
                break
            yield from pause(self._scheduler, RETRY_MS)
        self._brokers = brokers = self._fit(brokers)
        if self._store.unreadable_brokers:
            # Its broker will repair it, and no watch is on the node's content.
            again = self._watches.newest("unreadable brokers", self.reread_brokers)
            self._scheduler.call_later(UNREADABLE_MS, again)
        if self.loaded:
            log.info("controller has brokers=%s", sorted(brokers))
            self._submit(BrokersChanged(brokers=brokers))
        else:
            self._finish_loading()

    def reread_brokers(self) -> None:
        """Read the brokers again: other levels of features may count for them now."""
        self._flows.start(self._read_brokers())

    def _fit(self, brokers: dict[BrokerId, BrokerInfo]) -> dict[BrokerId, BrokerInfo]:
        """The brokers that support the levels of features that the cluster uses. Others would
        misread what is stored, and an early release does not know that it must not start."""
        levels = self._finalized().levels
        unfit = {
            broker: feature
            for broker, info in brokers.items()
            # Brokers of this version support them, as this one does.
            if info.supported != SUPPORTED
            and (feature := unsupported_feature(info.supported, levels)) is not None
        }
        known, self._unfit = self._unfit, frozenset((b, brokers[b].epoch) for b in unfit)
        for broker, epoch in sorted(self._unfit - known):
            log.error(
                "broker=%d epoch=%d is left out: it does not support %s at level %d; upgrade it",
                broker, epoch, unfit[broker], levels[unfit[broker]],
            )  # fmt: skip
        return {broker: info for broker, info in brokers.items() if broker not in unfit}

    # --- topics ---

    def _list_topics(self) -> None:
        self._flows.start(self._read_list_of_topics())

    def _read_list_of_topics(self) -> Flow[None]:
        while True:
            watch = self._watches.newest("topics", self._list_topics)
            topics = yield from self._store.list_topics(watch)
            if topics is not None:
                break
            yield from pause(self._scheduler, RETRY_MS)
        new = [topic for topic in topics if topic not in self._watched]
        if self.loaded or self._topics is None:
            self._read_topics(new)
        else:
            # No broker leads them yet. Where others make topics all the time, loading must not wait
            # for the last of them.
            self._reread_once_loaded.update(new)

    def _read_topics(self, topics: list[str]) -> None:
        if not topics and (self._topics is not None or self._reading):
            return
        self._watched.update(topics)
        # Others are submitted once everything is loaded: where somebody writes a topic time and
        # again, loading is not to wait for the last of it.
        is_awaited = not set(topics) <= (self._topics or {}).keys() or not topics
        self._reading += is_awaited
        self._flows.start(self._read_all_of(topics, is_awaited=is_awaited))

    def _read_all_of(self, topics: list[str], *, is_awaited: bool) -> Flow[None]:
        topics, found = yield from self._read_what_is_there(topics)
        self._reading -= is_awaited
        # A topic that is gone may be created again under its name.
        self._watched.difference_update(topic for topic in topics if topic not in found)
        if self.loaded:
            self._submit_topics(topics, found)
            return
        before = self._topics or {}
        for topic, info in found.items():
            if topic in before and before[topic].topic_id != info.topic_id:
                # Created again: the states that were read are the old topic's.
                for tp in [tp for tp in self._states if tp.topic == topic]:
                    del self._states[tp]
        self._topics = {**before, **found}
        self._load_states()

    def _read_what_is_there(
        self, topics: Iterable[str]
    ) -> Flow[tuple[list[str], dict[str, TopicInfo]]]:
        """Read the topics; those deleted by this controller meanwhile are left out: they may have
        been read before their deletion, and their successors are read anew."""
        wanted, gone = list(topics), _Gone()
        self._reads.append(gone)
        while True:
            found = yield from self._topic_store.read(wanted, self._topic_watch)
            if found is not None:
                break
            yield from pause(self._scheduler, RETRY_MS)
            wanted = [topic for topic in wanted if topic not in gone.topics]
        self._reads.remove(gone)
        for topic in gone.topics & found.keys():
            del found[topic]
            if topic not in self._known:
                self._topic_store.forget(topic)
        return [topic for topic in wanted if topic not in gone.topics], found

    def _submit_topics(self, topics: Iterable[str], found: dict[str, TopicInfo]) -> None:
        """Submit the outcome of a read of topics."""
        self._known.update(found)
        missing = set(topics) - found.keys()
        unreadable = frozenset(missing & self._topic_store.unreadable)
        absent = frozenset(missing - unreadable)
        self._submit(TopicsRead(topics=found, unreadable=unreadable, absent=absent))

    def _topic_watch(self, topic: str) -> Watch:
        return self._watches.newest(f"topic {topic}", partial(self._read_topics, [topic]))

    def watch_topic(self, topic: str, topic_id: UUID) -> None:
        """Watch a topic that this controller wrote itself from now on."""
        self._topic_store.created(topic, topic_id)
        if topic not in self._watched:
            # Others may have changed it already, before there was a watch.
            self._read_topics([topic])

    def learn_topics(self, topics: Iterable[str]) -> Flow[None]:
        """Wait until the controller knows each of these topics that exists: the watch on the list
        may not have fired yet, or its read may be under way."""
        while unknown := sorted(set(topics) - self._known):
            read, found = yield from self._read_what_is_there(unknown)
            if len(read) == len(unknown):
                self._watched.update(found)
                self._submit_topics(unknown, found)
                return
            # One was deleted meanwhile: it may exist again.

    def reread_topics(self, topics: Iterable[str] | None) -> None:
        """Read topics, or all that are watched (None), again: settings may have changed."""
        again = self._watched.intersection(self._watched if topics is None else topics)
        if not self.loaded:
            # They may have been read before the change.
            self._reread_once_loaded.update(again)
        elif again:
            self._read_topics(sorted(again))

    def topic_gone(self, topic: str) -> None:
        """Forget a deleted topic and read the list again: it may have been recreated while it was
        still counted as known."""
        self._watched.discard(topic)
        self._known.discard(topic)
        self._topic_store.forget(topic)
        for read in self._reads:
            read.topics.add(topic)
        self._watches.forget(f"topic {topic}")
        self._list_topics()

    # --- loading ---

    def _load_states(self) -> None:
        """Read the states of all topics: with a part of them, brokers would be ordered to stop the
        other replicas. States read before a change are not read again."""
        if self.loaded or self._topics is None or self._reading or self._reading_states:
            return
        missing = self._partitions_without_state()
        if missing:
            self._reading_states = True
            self._flows.start(self._store.read_states(missing), partial(self._take_states, missing))
        else:
            self._finish_loading()

    def _take_states(
        self,
        partitions: Iterable[TopicPartition],
        states: dict[TopicPartition, PartitionState | None] | None,
    ) -> None:
        self._reading_states = False
        if states is None:
            self._flows.start(pause(self._scheduler, RETRY_MS), lambda _none: self._load_states())
            return
        self._states.update((tp, states.get(tp)) for tp in partitions)
        self._finish_loading()

    def _partitions_without_state(self) -> list[TopicPartition]:
        return [
            tp
            for topic, info in (self._topics or {}).items()
            for number in info.assignment
            if (tp := TopicPartition(topic, number)) not in self._states
        ]

    def _finish_loading(self) -> None:
        if self.loaded or self._brokers is None or self._topics is None:
            return
        if self._reading or self._reading_states or self._deleting is None:
            return
        if self._partitions_without_state():
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
                unreadable=frozenset(self._topic_store.unreadable),
            )
        )
        if young := tuple(topic for topic in self._deleting if topic not in self._topics):
            self._flows.start(self._delete(young))
        if self._early_isr_changes:
            self._reread(sorted(self._early_isr_changes))
            self._early_isr_changes.clear()
        if self._reread_once_loaded:
            self._read_topics(sorted(self._reread_once_loaded))
            self._reread_once_loaded.clear()

    # --- deletions, ISR changes and failures ---

    def _on_deletions(self, topics: tuple[str, ...]) -> None:
        if not self.loaded:
            self._deleting = topics
            self._finish_loading()
        elif topics:
            self._flows.start(self._delete(topics))

    def _delete(self, topics: tuple[str, ...]) -> Flow[None]:
        yield from self.learn_topics(topics)
        self._submit(TopicDeletionRequested(topics=topics))

    def drop_deletion_request(self, topic: str) -> None:
        self._deletion_requests.drop(topic)

    def _on_isr_changes(self, notices: Mapping[str, bytes]) -> None:
        changed = changed_partitions(notices)
        if self.loaded and changed:
            self._reread(changed)
        else:
            # The states may have been read before these changes.
            self._early_isr_changes.update(changed)

    def _on_failures(self, notices: Mapping[str, bytes]) -> None:
        for broker in failed_brokers(notices):
            # While loading it is not needed: after that every broker is sent everything.
            if self.loaded:
                self._submit(BrokerReportsFailures(broker=broker))
