"""Creates and grows topics: checks what is asked, assigns replicas, writes the nodes.

A topic exists once /brokers/topics/<topic> is written, its settings in the same multi; the
controller does the rest. After a write without an answer the node is read and the write tried
again, for as long as a client waits for it; the topic's id shows whether the first write was done.
Source: R-CTL6, R-CTL11, R-REP1.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID, uuid4

from storage_engine.broker.cluster.begun_topics import BegunTopics
from storage_engine.broker.cluster.broker_places import BrokerPlaces, warn_of_shared_machines
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.settings.config import log_without_effect
from storage_engine.broker.settings.topic_config import (
    BrokerValues,
    TopicConfig,
    check_new_topic,
    validate_topic_config,
)
from storage_engine.core.assignment import (
    PARTITIONS_PER_STEP,
    Assignment,
    AssignmentSteps,
    NewPartitions,
    all_at_once,
    assignment_steps,
    lacks_machines,
)
from storage_engine.core.control.cluster_state import TopicInfo
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition, topic_name_problem
from storage_engine.core.placement import (
    Places,
    ReplicaCounts,
    cordoned_among,
    cordoned_problem,
)
from storage_engine.core.ports import (
    MetadataStore,
    Scheduler,
    ZkOp,
    ZkOpKind,
    ZkReply,
    ZkStat,
    ZkStatus,
)
from storage_engine.core.settings.settings import BY_TOPIC_KEY
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

log = logging.getLogger(__name__)


MAX_PARTITIONS = 10_000
"""The most partitions of a topic that one request can create: one znode and one LeaderAndIsr
request carry them with room to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedTopic:
    """A topic as asked for; -1 takes the broker's default."""

    topic: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, Sequence[int]] | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    may_share_machines: bool = False
    """Whether replicas of a partition share machines where there are too few, as those of internal
    topics do: groups and transactions depend on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """A topic that can be created."""

    info: TopicInfo
    config: Mapping[str, str]


OnWritten = Callable[[KafkaError | None], None]

BEGUN_MS = 10_000
"""How long a written topic counts without metadata of it: the controller tells of it in far less,
and it may have been deleted since."""

RETRY_MS = 200
"""Pause before a topic is read again because ZooKeeper did not answer. While the connection is made
again, the read waits for it in the session."""


def nobody() -> bool:
    """The outcome is ignored: the client of this topic will ask for it again."""
    return False


def always_authorized() -> None:
    """The `check_allowed` that allows everything."""


class TopicAdmin:
    """Topic creation on any broker."""

    def __init__(
        self,
        config: BrokerValues,
        *,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        metadata: MetadataCache,
        places: BrokerPlaces,
    ) -> None:
        self._config = config
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = Flows()
        self._scheduler = scheduler
        self._metadata = metadata
        self._broker_places = places
        self._begun = BegunTopics()

    def plan(self, new: RequestedTopic) -> PlannedTopic:
        """Check a topic and assign its replicas. Raises KafkaError with the code for the client."""
        return all_at_once(self.planning(new))

    def planning(self, new: RequestedTopic) -> Generator[None, None, PlannedTopic]:
        """Like `plan`, but yields where others may have their turn."""
        problem = topic_name_problem(new.topic)
        if problem is not None:
            raise KafkaError(problem, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if new.topic in self._metadata:
            raise KafkaError(f"topic '{new.topic}' exists", ErrorCode.TOPIC_ALREADY_EXISTS)
        try:
            config = validate_topic_config(new.config)
            check_new_topic(self._config, config)
        except ConfigError as failure:
            raise KafkaError(str(failure), ErrorCode.INVALID_CONFIG) from None
        assignment = yield from self._given(new) if new.assignment else self._assigned(new)
        unclean = TopicConfig.of(self._config, config).unclean_leader_election_enable
        info = TopicInfo(
            topic=new.topic, topic_id=uuid4(), assignment=assignment, unclean_election=unclean
        )
        return PlannedTopic(info=info, config=config)

    def _assigned(self, new: RequestedTopic) -> AssignmentSteps:
        partitions = (
            new.partitions if new.partitions != -1 else self._config.integer("num.partitions")
        )
        factor = new.replication_factor
        if factor == -1:
            factor = self._config.integer("default.replication.factor")
        if partitions > MAX_PARTITIONS:
            raise KafkaError(
                f"{partitions} partitions are more than the {MAX_PARTITIONS} possible at once",
                ErrorCode.INVALID_PARTITIONS,
            )
        places = self._places()
        if new.may_share_machines and lacks_machines(places, factor):
            log.warning(
                "topic=%s has %d replicas and fewer machines take them: some share one, and are "
                "lost together; add machines, then reassign it",
                new.topic, factor,
            )  # fmt: skip
        wanted = NewPartitions(partitions, factor, may_share_machines=new.may_share_machines)
        return (yield from assignment_steps(places, wanted, self._counts()))

    def _counts(self) -> ReplicaCounts:
        """The replicas of all brokers, with those of topics whose creation has begun."""
        counts = self._metadata.replica_counts()
        self._begun.settle(self._metadata)
        for replicas in self._begun.missing_from(self._metadata):
            counts.add(replicas)
        return counts

    def _places(self) -> Places:
        """The live brokers with their places. Raises a retriable KafkaError before the controller's
        first UpdateMetadata, also where this broker is the controller itself."""
        if not self._metadata.brokers:
            raise KafkaError(
                "the controller has not told this broker yet which brokers there are: ask again",
                ErrorCode.NOT_CONTROLLER,
            )
        return self._broker_places.of(self._metadata.brokers)

    def _given(self, new: RequestedTopic) -> AssignmentSteps:
        assert new.assignment is not None
        if new.partitions != -1 or new.replication_factor != -1:
            raise KafkaError(
                "give either an assignment or numbers of partitions and replicas, not both",
                ErrorCode.INVALID_REQUEST,
            )
        if sorted(new.assignment) != list(range(len(new.assignment))):
            raise KafkaError(
                "the partitions of an assignment are numbered from 0 without gaps",
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        factors = {len(replicas) for replicas in new.assignment.values()}
        places = self._places()
        known: set[int] = set(places)
        for partition, replicas in new.assignment.items():
            if partition % PARTITIONS_PER_STEP == 0:
                yield
            cordoned = cordoned_among(replicas, places)
            if not replicas or len(set(replicas)) != len(replicas) or len(factors) != 1:
                problem = "needs as many brokers as the others, each once"
            elif not known.issuperset(replicas):
                problem = f"names brokers that are not alive; alive are {sorted(known)}"
            elif cordoned:
                problem = cordoned_problem(cordoned)
            else:
                continue
            raise KafkaError(
                f"partition {partition} of '{new.topic}' {problem}",
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        given = {p: _brokers(replicas) for p, replicas in sorted(new.assignment.items())}
        warn_of_shared_machines(_by_name(new.topic, given), places)
        return given

    def write(
        self,
        planned: PlannedTopic,
        on_written: OnWritten,
        waits: Callable[[], bool] = nobody,
        *,
        check_allowed: Callable[[], None] = always_authorized,
    ) -> None:
        """Write settings and assignment in one multi, so that of two concurrent creations one
        succeeds and the other changes nothing. `waits`: whether a client still waits;
        `check_allowed` raises KafkaError where the client may not have it written any more."""
        self._begun.add(planned.info)
        self._flows.start(
            self._create(planned, waits, check_allowed), self._over(planned.info, on_written)
        )

    def _over(self, info: TopicInfo, on_written: OnWritten) -> OnWritten:
        def over(failure: KafkaError | None) -> None:
            if failure is not None:
                self._begun.drop(info)
            else:
                # It may be deleted before the next plan looks whether the metadata has it.
                self._scheduler.call_later(BEGUN_MS, partial(self._begun.drop, info))
            on_written(failure)

        return over

    def _create(
        self, planned: PlannedTopic, waits: Callable[[], bool], check_allowed: Callable[[], None]
    ) -> Flow[KafkaError | None]:
        topic, path = planned.info.topic, TopicZNode.path(planned.info.topic)
        creation = ZkOp(kind=ZkOpKind.CREATE, path=path, data=_node_of(planned.info).encode())
        exists = KafkaError(f"topic '{topic}' exists", ErrorCode.TOPIC_ALREADY_EXISTS)
        # Whether a write without an answer may have created the topic.
        lost = False
        while True:
            found = yield from self._zookeeper.get(path)
            if found.ok:
                return None if lost and _is_written(planned.info, found) else exists
            if found.status is ZkStatus.NO_NODE:
                # The settings are there already where a deleted topic of that name has left them.
                left_over = yield from self._zookeeper.get(ConfigZNode.topic_path(topic))
                if left_over.ok or left_over.status is ZkStatus.NO_NODE:
                    refusal = _refusal(check_allowed)
                    if refusal is not None:
                        return refusal
                    settings = _config_operations(planned, left_over.stat if left_over.ok else None)
                    written = yield from self._zookeeper.multi([*settings, creation])
                    if written.ok:
                        log_without_effect(planned.config, BY_TOPIC_KEY, where=f"topic '{topic}'")
                        return None
                    if written.status is ZkStatus.NODE_EXISTS and not lost:
                        return exists
                    # The topic may be of this creation: a server behind the others did not
                    # show it.
                    lost |= written.status is ZkStatus.UNKNOWN
            if not waits():
                return _unknown(topic)
            yield from pause(self._scheduler, RETRY_MS)

    def planning_growth(
        self, info: TopicInfo, total: int, assignments: Sequence[Sequence[int]] | None
    ) -> Generator[None, None, TopicInfo]:
        """Plan `total` partitions instead of the present number; yields where others may have their
        turn. Raises KafkaError."""
        present = len(info.assignment)
        if info.reassignments:
            raise KafkaError(
                f"topic '{info.topic}' is being reassigned: partitions can be added afterwards",
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
            )
        if not present or sorted(info.assignment) != list(range(present)):
            raise KafkaError(
                f"the partitions of topic '{info.topic}' are not numbered from 0 without gaps: "
                f"set its assignment in {TopicZNode.path(info.topic)} right first",
                ErrorCode.INVALID_PARTITIONS,
            )
        if total <= present:
            raise KafkaError(
                f"topic '{info.topic}' has {present} partitions; it can only get more, not {total}",
                ErrorCode.INVALID_PARTITIONS,
            )
        if total - present > MAX_PARTITIONS:
            raise KafkaError(
                f"{total - present} more partitions are over the {MAX_PARTITIONS} possible at once",
                ErrorCode.INVALID_PARTITIONS,
            )
        first = info.assignment[0]
        if assignments is None:
            new = NewPartitions(total - present, len(first), present, start_broker=first[0])
            added = yield from assignment_steps(self._places(), new, self._counts())
        else:
            added = self._given_growth(info, total, assignments)
        return TopicInfo(
            topic=info.topic,
            topic_id=info.topic_id,
            assignment={**info.assignment, **added},
            unclean_election=info.unclean_election,
        )

    def _given_growth(
        self, info: TopicInfo, total: int, assignments: Sequence[Sequence[int]]
    ) -> Assignment:
        present = len(info.assignment)
        factor = len(info.assignment[0])
        places = self._places()
        known: set[int] = set(places)
        if len(assignments) != total - present or any(
            len(set(r)) != factor or len(r) != factor or not known.issuperset(r)
            for r in assignments
        ):
            raise KafkaError(
                f"the assignment must give {total - present} partitions {factor} live brokers each",
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        cordoned = cordoned_among({broker for each in assignments for broker in each}, places)
        if cordoned:
            raise KafkaError(
                f"the assignment {cordoned_problem(cordoned)}", ErrorCode.INVALID_REPLICA_ASSIGNMENT
            )
        given = {present + i: _brokers(replicas) for i, replicas in enumerate(assignments)}
        warn_of_shared_machines(_by_name(info.topic, given), places)
        return given

    def write_growth(
        self,
        info: TopicInfo,
        on_written: OnWritten,
        waits: Callable[[], bool] = nobody,
        *,
        check_allowed: Callable[[], None] = always_authorized,
    ) -> None:
        """Write the larger assignment, unless the topic was changed meanwhile. For the other
        parameters see `write`."""
        self._begun.add(info)
        self._flows.start(self._grow(info, waits, check_allowed), self._over(info, on_written))

    def _grow(
        self, info: TopicInfo, waits: Callable[[], bool], check_allowed: Callable[[], None]
    ) -> Flow[KafkaError | None]:
        topic, path = info.topic, TopicZNode.path(info.topic)
        # As in a creation.
        lost = False
        while True:
            found = yield from self._zookeeper.get(path)
            if found.ok and found.stat is not None:
                if lost and _is_written(info, found):
                    return None
                refusal = _growth_refusal(info, found) or _refusal(check_allowed)
                if refusal is not None:
                    return refusal
                version = found.stat.version
                written = yield from self._zookeeper.set(path, _node_of(info).encode(), version)
                if written.ok:
                    return None
                lost |= written.status is ZkStatus.UNKNOWN
            elif found.status is not ZkStatus.UNKNOWN:
                return _unknown(topic)
            if not waits():
                return _unknown(topic)
            yield from pause(self._scheduler, RETRY_MS)


def _by_name(topic: str, assignment: Assignment) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    return {TopicPartition(topic, partition): each for partition, each in assignment.items()}


def _refusal(check_allowed: Callable[[], None]) -> KafkaError | None:
    try:
        check_allowed()
    except KafkaError as failure:
        return failure.as_outcome()
    return None


def _is_written(info: TopicInfo, found: ZkReply) -> bool:
    """Whether the node has the content of a write whose answer was lost."""
    try:
        node = TopicZNode.decode(info.topic, found.data)
    except ZnodeFormatError:
        return False
    return (node.topic_id or _NO_ID) == info.topic_id and all(
        partition in node.assignment for partition in info.assignment
    )


def _config_operations(planned: PlannedTopic, left_over: ZkStat | None) -> list[ZkOp]:
    """Operations that write a new topic's settings, where a deleted topic's may still exist."""
    path = ConfigZNode.topic_path(planned.info.topic)
    data = ConfigZNode(config=planned.config).encode()
    if left_over is None:
        return [ZkOp(kind=ZkOpKind.CREATE, path=path, data=data)] if planned.config else []
    # Not deleted where there are none: others may have made nodes below it.
    return [ZkOp(kind=ZkOpKind.SET, path=path, data=data, version=left_over.version)]


def _growth_refusal(wanted: TopicInfo, found: ZkReply) -> KafkaError | None:
    """None if the topic is the same and has fewer partitions, all of which stay where they are."""
    try:
        present = TopicZNode.decode(wanted.topic, found.data)
    except ZnodeFormatError as failure:
        return KafkaError(str(failure), ErrorCode.UNKNOWN_SERVER_ERROR)
    same = present.topic_id in (None, wanted.topic_id) and all(
        tuple(wanted.assignment.get(partition, ())) == tuple(replicas)
        for partition, replicas in present.assignment.items()
    )
    if same and not present.target_replicas and len(wanted.assignment) > len(present.assignment):
        return None
    return KafkaError(
        f"topic '{wanted.topic}' has been changed meanwhile: it has "
        f"{len(present.assignment)} partitions, look at it again",
        ErrorCode.INVALID_PARTITIONS,
    )


_NO_ID = UUID(int=0)
"""The id of a topic whose id was lost."""


def _node_of(info: TopicInfo) -> TopicZNode:
    return TopicZNode(
        topic=info.topic,
        topic_id=info.topic_id if info.topic_id.int else None,
        assignment={p: _brokers(rs) for p, rs in info.assignment.items()},
    )


def _brokers(replicas: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(replica) for replica in replicas)


def _unknown(topic: str) -> KafkaError:
    return KafkaError(
        f"ZooKeeper did not answer: topic '{topic}' may or may not have been changed",
        ErrorCode.REQUEST_TIMED_OUT,
    )
