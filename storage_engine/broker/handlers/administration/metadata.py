"""Describes the cluster to clients: Metadata, DescribeCluster and DescribeTopicPartitions.

A broker that has just started answers when the controller has sent it the first metadata, or after
some seconds. It never sends an empty list of brokers: librdkafka would take it for the whole
cluster, and not ask again for minutes.

Metadata (key 3) names brokers, topics and leaders, and creates unknown topics where that is
allowed. It names a leader that has answered a probe (`leader_doubts`); a client that asks about
certain topics first gets an answer without the former leader.
Source: R-CTL2 (LEADER_NOT_AVAILABLE), R-CTL11, KIP-516 (topic ids).

DescribeCluster: cluster id, controller and live brokers (KIP-700). DescribeTopicPartitions: topics
in the order of their names, as many partitions as an answer may have, and where the next answer
begins (KIP-966).
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from storage_engine.broker.cluster.leader_doubts import LeaderDoubts, LeaderProbes
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.topic_admin import RequestedTopic, TopicAdmin
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import (
    INTERNAL_TOPICS,
    NO_LEADER,
    BrokerId,
    TopicPartition,
    topic_name_problem,
)
from storage_engine.core.ports import Scheduler
from storage_engine.net.client_log import ClientLog
from storage_engine.protocol.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from storage_engine.protocol.apis.update_metadata import UpdateMetadataPartition
from storage_engine.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from storage_engine.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

MAX_WAIT_MS = 5_000
"""The longest wait for metadata: clients wait longer for an answer, and a controller needs less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterForClients:
    """The cluster's id, brokers and topics, as clients see them."""

    cluster_id: str
    broker_id: BrokerId
    metadata: MetadataCache
    doubts: LeaderDoubts
    has_lease: Callable[[], bool]
    """Whether this broker surely leads the partitions that it takes itself to lead."""
    scheduler: Scheduler

    def brokers_at(self, listener: str) -> list[BrokerInfo]:
        """The live brokers that have the listener, with its addresses.

        A broker that may have been replaced leaves itself out, and so is no leader of anything: its
        view of the cluster may be old, and a client that goes on asking it would never learn of the
        new leaders. As the only live broker it has no other to name, and names itself.
        """
        at_listener = (broker.at(listener) for broker in self.metadata.brokers.values())
        every = [broker for broker in at_listener if broker is not None]
        if self.has_lease():
            return every
        others = [broker for broker in every if broker.broker_id != self.broker_id]
        return others or every

    def leaders_among(self, brokers: Iterable[BrokerInfo]) -> frozenset[BrokerId]:
        """The ids of the brokers that clients may be sent to as leaders."""
        return frozenset(broker.broker_id for broker in brokers) - self.doubts.current()

    def when_known(self, answer: Callable[[], None]) -> None:
        """Call `answer` once there is metadata, or without any after MAX_WAIT_MS."""
        metadata = self.metadata
        if metadata.is_initialized:
            answer()
            return

        def on_update() -> None:
            if deadline.finish():
                answer()

        def expire() -> None:
            metadata.wait_no_longer(on_update)
            answer()

        deadline = RequestDeadline(self.scheduler, MAX_WAIT_MS, expire)
        metadata.on_first_update(on_update)


log = ClientLog(__name__)


class LivePeers(NamedTuple):
    """The live brokers, and the brokers among them that are named as leaders."""

    brokers: frozenset[BrokerId]
    leaders: frozenset[BrokerId]
    untold: frozenset[BrokerId] = frozenset()
    """Brokers that have gone since the client's last answer."""
    replaced: Mapping[TopicPartition, BrokerId] = MappingProxyType({})
    """Partitions whose leaders have just gone, with these former leaders."""

    @classmethod
    def of(cls, cluster: ClusterForClients, listener: str) -> "LivePeers":
        """The peers for a client that asks for the state of the cluster, not where to write."""
        brokers = cluster.brokers_at(listener)
        live = frozenset(broker.broker_id for broker in brokers)
        return cls(live, cluster.leaders_among(brokers))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataHandler:
    """Answers Metadata."""

    cluster: ClusterForClients
    probes: LeaderProbes
    topic_admin: TopicAdmin
    config: DynamicConfig
    may_create: Callable[[ApiCall[MetadataResponse], str], bool] | None = None
    """Whether the client may create a topic by asking for it; None where every client may."""

    def handle(self, call: ApiCall[MetadataResponse], request: MetadataRequest) -> None:
        def respond() -> None:
            call.run(self._respond(call, request))

        self.cluster.when_known(lambda: self.probes.ask(self._named(request), respond))

    def _named(self, request: MetadataRequest) -> Iterator[str]:
        """The topics that the request names; none for all topics."""
        yield from request.topics or ()
        for topic_id in request.topic_ids:
            # The id of an unknown topic counts as a topic, too.
            yield self.cluster.metadata.topic_name(topic_id) or ""

    def _respond(self, call: ApiCall[MetadataResponse], request: MetadataRequest) -> Steps:
        metadata = self.cluster.metadata
        brokers = self.cluster.brokers_at(call.connection.listener_name)
        live = LivePeers(
            frozenset(broker.broker_id for broker in brokers),
            self.cluster.leaders_among(brokers),
            # A request for the whole cluster asks for its state, not where to write. One for no
            # topic gets no leader.
            self.cluster.doubts.untold(call.connection.number)
            if request.topics or (request.topic_ids and request.topics is not None)
            else frozenset(),
            self.cluster.doubts.replaced,
        )
        topics: list[MetadataTopic] = []
        if request.topics is None:
            for topic in sorted(metadata.topics()):
                # A topic that is deleted meanwhile is left out.
                if topic in metadata:
                    found = yield from self._topic(topic, live)
                    topics.append(found)
        else:
            create = request.allow_auto_topic_creation and self.config.flag(
                "auto.create.topics.enable"
            )
            # Each once: a topic may have many partitions.
            for topic in dict.fromkeys(request.topics):
                found = yield from self._by_name(call, topic, live, create=create)
                topics.append(found)
                yield None
            for topic_id in dict.fromkeys(request.topic_ids):
                topics.append((yield from self._by_id(topic_id, live)))
                yield None
        call.respond(
            MetadataResponse(
                brokers=[
                    MetadataBroker(broker_id=b.broker_id, host=b.host, port=b.port, rack=b.rack)
                    for b in brokers
                ],
                topics=topics,
                controller_id=metadata.controller_id,
                cluster_id=self.cluster.cluster_id,
            )
        )

    def _by_name(
        self, call: ApiCall[MetadataResponse], topic: str, live: LivePeers, *, create: bool
    ) -> Generator[None, None, MetadataTopic]:
        if topic in self.cluster.metadata:
            return (yield from self._topic(topic, live))
        if topic in INTERNAL_TOPICS:
            # The brokers make it when it is needed.
            return _missing(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic_name_problem(topic) is not None:
            return _missing(topic, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if create:
            if self.may_create is not None and not self.may_create(call, topic):
                return _missing(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return _missing(topic, self._create(call, topic))
        return _missing(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _by_id(self, topic_id: UUID, live: LivePeers) -> Generator[None, None, MetadataTopic]:
        topic = self.cluster.metadata.topic_name(topic_id)
        if topic is not None:
            return (yield from self._topic(topic, live))
        return MetadataTopic(
            topic=None, partitions=(), error_code=int(ErrorCode.UNKNOWN_TOPIC_ID), topic_id=topic_id
        )

    def _create(self, call: ApiCall[MetadataResponse], topic: str) -> ErrorCode:
        """Begin to create the topic; the client retries until it has leaders."""

        def check_allowed() -> None:
            if self.may_create is not None and not self.may_create(call, topic):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                raise KafkaError(code.meaning, code)

        def on_written(failure: KafkaError | None) -> None:
            if failure is None:
                log.info(topic, "created topic=%s for a client that asked for it", topic)
            elif failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning(topic, "topic=%s not created: %s", topic, failure)

        try:
            planned = self.topic_admin.plan(RequestedTopic(topic=topic))
            call.mutate(len(planned.info.assignment))
        except KafkaError as failure:
            return failure.code
        self.topic_admin.write(planned, on_written, check_allowed=check_allowed)
        return ErrorCode.LEADER_NOT_AVAILABLE

    def _topic(self, topic: str, live: LivePeers) -> Generator[None, None, MetadataTopic]:
        partitions = self.cluster.metadata.partitions(topic) or {}
        topic_id = self.cluster.metadata.topic_id(topic)
        rows = []
        for partition in sorted(partitions):
            rows.append(partition_row(partitions[partition], live))
            yield None
        return MetadataTopic(
            topic=topic,
            topic_id=topic_id or UUID(int=0),
            is_internal=topic in INTERNAL_TOPICS,
            partitions=rows,
        )


def _missing(topic: str, code: ErrorCode) -> MetadataTopic:
    return MetadataTopic(topic=topic, partitions=(), error_code=int(code))


def partition_row(item: UpdateMetadataPartition, live: LivePeers) -> MetadataPartition:
    has_leader = item.leader in live.leaders
    if live.untold and has_leader:
        tp = TopicPartition(item.topic, item.partition)
        has_leader = live.replaced.get(tp, NO_LEADER) not in live.untold
    return MetadataPartition(
        partition=item.partition,
        error_code=0 if has_leader else int(ErrorCode.LEADER_NOT_AVAILABLE),
        leader=item.leader if has_leader else -1,
        leader_epoch=item.leader_epoch,
        replicas=item.replicas,
        isr=item.isr,
        offline_replicas=[r for r in item.replicas if r not in live.brokers],
    )


BROKERS = 1
"""The kind of endpoint that is served; Kafka's other kind, KRaft controllers, does not exist
here."""


def describe_cluster(
    cluster: ClusterForClients,
    call: ApiCall[DescribeClusterResponse],
    request: DescribeClusterRequest,
) -> None:
    if call.version >= 1 and request.endpoint_type != BROKERS:
        call.respond(
            DescribeClusterResponse(
                error_code=int(ErrorCode.INVALID_REQUEST),
                error_message="only endpoints of brokers (type 1) can be described",
            )
        )
        return
    cluster.when_known(lambda: call.respond(_description(cluster, call.connection.listener_name)))


def _description(cluster: ClusterForClients, listener: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.metadata.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=b.broker_id, host=b.host, port=b.port, rack=b.rack
            )
            for b in cluster.brokers_at(listener)
        ],
    )


_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = _Topic.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsHandler:
    """Answers DescribeTopicPartitions."""

    cluster: ClusterForClients
    most_partitions: int
    """The most partitions of one answer, whatever the client's limit."""

    def handle(
        self,
        call: ApiCall[DescribeTopicPartitionsResponse],
        request: DescribeTopicPartitionsRequest,
    ) -> None:
        self.cluster.when_known(lambda: call.run(self._respond(call, request)))

    def _respond(
        self,
        call: ApiCall[DescribeTopicPartitionsResponse],
        request: DescribeTopicPartitionsRequest,
    ) -> Steps:
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            code = ErrorCode.INVALID_REQUEST
            call.respond(_answer([_without_partitions(t.name, code) for t in request.topics], None))
            return
        names = {topic.name for topic in request.topics} or set(self.cluster.metadata.topics())
        live = LivePeers.of(self.cluster, call.connection.listener_name)
        left = min(self.most_partitions, max(1, request.response_partition_limit))
        rows: list[_Topic] = []
        for name in sorted(names):
            first = 0
            if cursor is not None and name <= cursor.topic_name:
                if name < cursor.topic_name:
                    continue
                first = cursor.partition_index
            if not left:
                # The topic is left to the next answer.
                call.respond(_answer(rows, _Cursor(topic_name=name, partition_index=first)))
                return
            row = yield from self._topic(name, live, first, left)
            rows.append(row)
            left -= len(row.partitions)
            done = first + len(row.partitions)
            if done < len(self.cluster.metadata.partitions(name) or ()) and not left:
                call.respond(_answer(rows, _Cursor(topic_name=name, partition_index=done)))
                return
            yield None
        call.respond(_answer(rows, None))

    def _topic(
        self, name: str, live: LivePeers, first: int, most: int
    ) -> Generator[None, None, _Topic]:
        metadata = self.cluster.metadata
        partitions = metadata.partitions(name)
        if partitions is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic_name_problem(name) is not None:
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return _without_partitions(name, code)
        rows: list[_Partition] = []
        for number in sorted(partitions)[first : first + most]:
            rows.append(_partition(partition_row(partitions[number], live)))
            yield None
        return _Topic(
            name=name,
            error_code=0,
            topic_id=metadata.topic_id(name) or UUID(int=0),
            is_internal=name in INTERNAL_TOPICS,
            partitions=rows,
        )


def _answer(rows: list[_Topic], cursor: _Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=rows, next_cursor=cursor)


def _without_partitions(name: str, code: ErrorCode) -> _Topic:
    return _Topic(name=name, error_code=int(code), topic_id=UUID(int=0), partitions=[])


def _partition(row: MetadataPartition) -> _Partition:
    return _Partition(
        error_code=row.error_code,
        partition_index=row.partition,
        leader_id=row.leader,
        leader_epoch=row.leader_epoch,
        replica_nodes=list(row.replicas),
        isr_nodes=list(row.isr),
        # Replicas that left the in-sync replicas are not eligible here; clients want a list.
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=list(row.offline_replicas),
    )
