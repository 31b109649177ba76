"""The elected controller: turns ZooKeeper's watches into events, and the core's effects into writes
and requests.

Events are applied one after another, each with all its effects started, never nested. An effect
that can't be started is tried again, without those beside it; an event that can't be applied leaves
a view that nobody can trust, so this broker resigns, and the next controller loads everything anew.
Everything ends with the controller epoch: answers that come after `close` are ignored. Source:
R-CTL5.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from storage_engine.broker import unexpected
from storage_engine.broker.controller.admin_requests import AdminRequests
from storage_engine.broker.controller.controller_channel import ControllerChannel
from storage_engine.broker.controller.elections import Elections, OnElected
from storage_engine.broker.controller.feature_store import FeatureStore, OnUpdated
from storage_engine.broker.controller.state_reader import StateReader
from storage_engine.broker.controller.store import (
    AssignmentStore,
    ControllerFence,
    ControllerStore,
    TopicRemoval,
    with_assignment,
)
from storage_engine.broker.controller.topic_store import TopicStore
from storage_engine.broker.controller.watches import ControllerWatches
from storage_engine.core.control.cluster_state import ONLY_LISTENER, PartitionState, TopicInfo
from storage_engine.core.control.controller import Controller
from storage_engine.core.control.controller_events import (
    AssignmentsWritten,
    BalanceChecked,
    ContinueElections,
    ControlledShutdownRequested,
    DeleteTopicNodes,
    Deliver,
    DropDeletionRequests,
    DropReassignmentRequests,
    Effect,
    ElectionsContinued,
    Event,
    Loaded,
    NoReplicaOnline,
    ReadStates,
    ShutdownProgress,
    StatesWritten,
    TopicDeleted,
    TopicDeletionRequested,
    TopicsRead,
    TopicsReady,
    WriteAssignments,
    WriteOutcome,
    WriteStates,
)
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.features import FIRST_FEATURES, FeatureUpdate, FinalizedFeatures
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition
from storage_engine.core.ports import MetadataStore, Scheduler
from storage_engine.protocol.transport import Transport
from storage_engine.zookeeper.flow import Flow, Flows, pause

log = logging.getLogger(__name__)
state_change_log = logging.getLogger("headrace.state_change")

TopicListener = Callable[[KafkaError | None], None]
"""Called once: with None when the request is done, or with why it will not be done here."""

ShutdownListener = Callable[[tuple[TopicPartition, ...] | None], None]
"""Called with the partitions still to move; with None when this controller has resigned."""

RETRY_MS = 500
"""Pause before a deletion that ZooKeeper did not answer is done again."""

ELECTIONS_FIRST_MS = 500
"""Pause after loading, before what no client waits for: the failover goes first."""

TELL_MS = 5_000
"""The longest wait until brokers have the metadata; a slower one is in trouble."""

LONG_DELIVERY = 2_000
"""The most partitions of a delivery without a turn of its own: some 30 ms."""

RETRY_MAX_MS = 30_000
"""The longest pause before an effect is tried again, after many failures in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """The settings of its broker that the controller needs."""

    broker_id: BrokerId
    delete_topic_enable: bool
    unclean_default: Callable[[], bool]
    """`unclean.leader.election.enable` for topics that don't set it."""
    balance_check_ms: int | None
    """`leader.imbalance.check.interval.seconds`; None: leaders stay where they are."""
    balance_percentage: int
    inter_broker_listener: str = ONLY_LISTENER
    finalized: Callable[[], FinalizedFeatures] = lambda: FIRST_FEATURES
    """The levels of features that the cluster uses, as this broker knows them."""


class ActingController:
    """The controller during one controller epoch of this broker."""

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        controller_epoch: ControllerEpoch,
        epoch_znode_version: int,
        metadata_store: MetadataStore,
        transport: Transport,
        scheduler: Scheduler,
        resign: Callable[[], None],
        give_up: Callable[[], None],
    ) -> None:
        """`resign`: there is a newer controller. `give_up`: another one should be elected."""
        self.controller_epoch = controller_epoch
        self._settings = settings
        self._scheduler = scheduler
        self._resign, self._give_up = resign, give_up
        self._flows = flows = Flows()
        self._events: deque[Event] = deque()
        self._stepping = False
        self._long_deliveries: deque[Deliver] = deque()
        """Long deliveries that wait for a turn of their own; at most one for each broker."""
        self._topic_waiters: dict[str, list[TopicListener]] = {}
        self._deletion_waiters: dict[str, list[TopicListener]] = {}
        self._shutdown_waiters: dict[BrokerId, list[ShutdownListener]] = {}
        self._untold: deque[tuple[Mapping[BrokerId, int], Callable[[], None]]] = deque()
        self._core = core = Controller(
            controller_epoch=controller_epoch, delete_topic_enable=settings.delete_topic_enable
        )
        self._channel = ControllerChannel(
            controller_id=settings.broker_id,
            controller_epoch=controller_epoch,
            transport=transport,
            scheduler=scheduler,
            flows=flows,
            report=self.submit,
            on_replaced=self._replaced,
        )
        fence = ControllerFence(
            metadata_store, flows,
            epoch_znode_version=epoch_znode_version, on_replaced=self._replaced,
        )  # fmt: skip
        self._store = ControllerStore(metadata_store, flows, fence, settings.inter_broker_listener)
        self._states = StateReader(
            self._store, scheduler, flows, fence, core=core, submit=self.submit
        )
        topics = TopicStore(metadata_store, flows, unclean_default=settings.unclean_default)
        self._watches = ControllerWatches(
            metadata_store, self._store, topics, scheduler, flows, fence,
            submit=self.submit, reread=self._states.read, finalized=settings.finalized,
        )  # fmt: skip
        self._features = FeatureStore(metadata_store, scheduler, flows, fence, settings.finalized)
        self._assignments = AssignmentStore(metadata_store, scheduler, fence)
        self._removal = TopicRemoval(metadata_store, fence)
        self._elections = Elections(core, submit=self.submit, refresh=self._states.read)
        self._requests = AdminRequests(
            metadata_store, scheduler, flows,
            submit=self.submit, elections=self._elections, learn_topics=self._watches.learn_topics,
        )  # fmt: skip

    def start(self) -> None:
        """Set the watches, load everything, send all leadership to all brokers."""
        self._requests.start()
        self._watches.start()
        self._check_balance_later()

    def _check_balance_later(self) -> None:
        interval_ms = self._settings.balance_check_ms
        if interval_ms is not None:
            self._scheduler.call_later(interval_ms, self._check_balance)

    def _check_balance(self) -> None:
        if self._flows.closed:
            return
        if self.loaded:
            self.submit(BalanceChecked(percentage=self._settings.balance_percentage))
        self._check_balance_later()

    def close(self) -> None:
        """Stop for good, and answer the requests that wait."""
        self._flows.close()
        self._requests.close()
        self._events.clear()
        self._elections.close()
        self._expire_waiters(None)
        for waiters in (self._topic_waiters, self._deletion_waiters):
            listeners = [listener for each in waiters.values() for listener in each]
            waiters.clear()
            for listener in listeners:
                listener(replaced())
        shutdowns = [listener for each in self._shutdown_waiters.values() for listener in each]
        self._shutdown_waiters.clear()
        for on_progress in shutdowns:
            on_progress(None)

    # --- requests of handlers ---

    @property
    def core(self) -> Controller:
        """The controller's state, to be read only."""
        return self._core

    @property
    def loaded(self) -> bool:
        return self._watches.loaded

    def topic_changed(self, info: TopicInfo, on_ready: TopicListener) -> None:
        """A topic was written by this broker; `on_ready` when all partitions have leaders."""
        self._topic_waiters.setdefault(info.topic, []).append(on_ready)
        # Before everything is loaded the watches will find it by themselves.
        if self.loaded:
            self._watches.watch_topic(info.topic, info.topic_id)
            self.submit(TopicsRead(topics={info.topic: info}))

    def when_brokers_updated(self, then: Callable[[], None]) -> None:
        """Call `then` once all live brokers have received what is decided so far. A broker that is
        gone, or to which a delivery has failed, is not waited for; one that hangs, for `TELL_MS`:
        it learns later what it has missed, as brokers of Kafka do."""
        waiter = (self._core.owed_now(), then)
        self._untold.append(waiter)
        self._complete_waiters()
        if self._untold:
            # It is the last of them, so it waits, too.
            self._scheduler.call_later(TELL_MS, partial(self._expire_waiters, waiter))

    def _complete_waiters(self) -> None:
        """Answer in order: a later waiter waits for as much or more than the first one."""
        while self._untold and self._core.are_settled(self._untold[0][0]):
            self._untold.popleft()[1]()

    def _expire_waiters(
        self, last: tuple[Mapping[BrokerId, int], Callable[[], None]] | None
    ) -> None:
        """Answer `last` and the waiters before it, or all: the decisions stay as they are."""
        while self._untold if last is None else last in self._untold:
            self._untold.popleft()[1]()

    def settings_changed(self, topics: Iterable[str] | None) -> None:
        """Read topics, or all (None), again: elections may go by other settings now."""
        self._watches.reread_topics(topics)

    def features_changed(self) -> None:
        """Read the brokers again: others may support the levels that the cluster uses now."""
        self._watches.reread_brokers()

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        on_updated: OnUpdated,
        *,
        check_allowed: Callable[[], None],
        validate_only: bool,
    ) -> None:
        """Set the levels of features; see `FeatureStore.update`."""
        self._features.update(
            updates, on_updated, check_allowed=check_allowed, validate_only=validate_only
        )

    def delete_topic(self, topic: str, on_deleted: TopicListener) -> None:
        """Begin a deletion whose request node exists; `on_deleted` when the topic is gone."""
        self._deletion_waiters.setdefault(topic, []).append(on_deleted)
        if self.loaded:
            self.submit(TopicDeletionRequested(topics=(topic,)))

    def controlled_shutdown(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, on_progress: ShutdownListener
    ) -> None:
        """Move leaders away; `on_progress(partitions still to move)` after each change."""
        self._shutdown_waiters.setdefault(broker, []).append(on_progress)
        self.submit(ControlledShutdownRequested(broker=broker, broker_epoch=broker_epoch))

    def reassign(
        self,
        targets: Mapping[TopicPartition, tuple[BrokerId, ...]],
        on_written: Callable[[bool], None],
    ) -> None:
        """Ask for other replicas; `on_written(False)`: ZooKeeper did not answer."""
        self._requests.reassign(targets, on_written)

    def elect(
        self, partitions: Iterable[TopicPartition], on_elected: OnElected, *, unclean: bool
    ) -> None:
        """Elect preferred replicas, or with `unclean` any; `on_elected` when all are over."""
        self._elections.request(partitions, on_elected, unclean=unclean)

    # --- events in, effects out ---

    def submit(self, event: Event) -> None:
        """Apply an event once those before it are applied."""
        if self._flows.closed:
            return
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                self._apply(self._events.popleft())
        finally:
            self._stepping = False
        self._applied(event)

    def _applied(self, event: Event) -> None:
        if self._flows.closed:
            return
        if isinstance(event, Loaded):
            self._requests.release()
            self._scheduler.call_later(ELECTIONS_FIRST_MS, self._features.start)
        self._elections.answer_settled()
        self._complete_waiters()

    def _apply(self, event: Event) -> None:
        try:
            effects = self._core.step(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next controller begins anew
            self._give_up()
            unexpected.report(f"controller can't take {type(event).__name__}, gives up", error)
            return
        for effect in effects:
            if isinstance(effect, ContinueElections):
                self._scheduler.call_later(0, partial(self.submit, ElectionsContinued()))
            elif isinstance(effect, Deliver) and _is_long(effect):
                self._long_deliveries.append(effect)
                if len(self._long_deliveries) == 1:
                    self._scheduler.call_later(0, self._deliver_next)
            else:
                self._start(effect, RETRY_MS)

    def _deliver_next(self) -> None:
        """Start one long delivery in this turn: a new controller has one for each broker."""
        if self._flows.closed:
            return
        effect = self._long_deliveries.popleft()
        if self._long_deliveries:
            self._scheduler.call_later(0, self._deliver_next)
        self._start(effect, RETRY_MS)

    def _start(self, effect: Effect, retry_ms: int) -> None:
        if self._flows.closed:
            return
        try:
            self._carry_out(effect)
        except Exception as error:  # noqa: BLE001 - whatever it is, others' effects follow
            again_ms = min(2 * retry_ms, RETRY_MAX_MS)
            for part in _parts(effect):
                self._scheduler.call_later(retry_ms, partial(self._start, part, again_ms))
            unexpected.report(f"controller can't carry out {type(effect).__name__}", error)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case WriteStates():
                self._write_states(effect)
            case ReadStates():
                self._states.read_after_pause(effect.partitions)
            case Deliver():
                broker = self._core.brokers.get(effect.broker)
                if broker is not None:
                    self._channel.send(broker, effect.delivery)
            case NoReplicaOnline():
                names = ", ".join(map(str, effect.partitions))
                log.error("NoReplicaOnline: no live in-sync replica partitions=%s", names)
            case ShutdownProgress():
                self._shutdown_progress(effect)
            case TopicsReady():
                self._topics_ready(effect.topics)
            case DeleteTopicNodes():
                self._flows.start(self._delete_topic_nodes(effect))
            case DropDeletionRequests():
                self._drop_deletion_requests(effect.topics)
            case WriteAssignments():
                self._flows.start(self._write_assignments(effect))
            case DropReassignmentRequests():
                self._requests.drop(effect)

    def _topics_ready(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for on_ready in self._topic_waiters.pop(topic, []):
                on_ready(None)

    def _write_states(self, effect: WriteStates) -> None:
        for write in effect.writes:
            state_change_log.info(
                "elect partition=%s leader=%d leader_epoch=%d isr=%s controller_epoch=%d",
                write.partition,
                write.state.leader,
                write.state.leader_epoch,
                list(write.state.isr),
                write.state.controller_epoch,
            )
        self._store.write_states(effect.writes, self._states_written)

    def _states_written(
        self, outcomes: Mapping[TopicPartition, tuple[WriteOutcome, PartitionState]]
    ) -> None:
        self.submit(StatesWritten(outcomes=outcomes))

    def _write_assignments(self, effect: WriteAssignments) -> Flow[None]:
        node = yield from self._assignments.write(effect)
        known = self._core.topic(effect.topic)
        info = None if known is None or node is None else with_assignment(known, node)
        self.submit(AssignmentsWritten(topic=effect.topic, info=info))

    def _shutdown_progress(self, effect: ShutdownProgress) -> None:
        waiters = self._shutdown_waiters.get(effect.broker, [])
        if not effect.remaining:
            self._shutdown_waiters.pop(effect.broker, None)
        for waiter in list(waiters):
            waiter(effect.remaining)

    def _drop_deletion_requests(self, topics: Iterable[str]) -> None:
        for topic in topics:
            log.warning(
                "request to delete topic=%s dropped: no such topic, or not to be deleted", topic
            )
            self._watches.drop_deletion_request(topic)
            # The requested deletion is done: somebody else's was faster.
            self._deletion_over(topic)

    def _delete_topic_nodes(self, effect: DeleteTopicNodes) -> Flow[None]:
        topic = effect.topic
        while not (yield from self._removal.remove(topic, effect.partitions)):
            yield from pause(self._scheduler, RETRY_MS)
        log.info("deleted topic=%s", topic)
        self.submit(TopicDeleted(topic=topic))
        self._watches.topic_gone(topic)
        self._deletion_over(topic)

    def _deletion_over(self, topic: str) -> None:
        for on_deleted in self._deletion_waiters.pop(topic, []):
            on_deleted(None)

    def _replaced(self) -> None:
        if not self._flows.closed:
            log.warning("controller epoch %d is over: replaced", self.controller_epoch)
            self._resign()


def replaced() -> KafkaError:
    """The error for requests that wait when this controller ends."""
    return KafkaError(
        "the controller was replaced meanwhile: the next one carries on, ask it",
        ErrorCode.REQUEST_TIMED_OUT,
    )


def _is_long(effect: Deliver) -> bool:
    delivery = effect.delivery
    return len(delivery.metadata) + len(delivery.leadership) > LONG_DELIVERY


def _parts(effect: Effect) -> Sequence[Effect]:
    """The parts of an effect that can be retried alone, so that a partition that can't be written
    does not hinder the others."""
    if isinstance(effect, WriteStates):
        return [WriteStates(writes=(write,)) for write in effect.writes]
    return [effect]
