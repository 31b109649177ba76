"""Metadata: brokers, topics, leaders; creates unknown topics where that is allowed.

A broker that has just started answers when the controller has sent it the first metadata.

A leader is named when it has given a sign of life (`leader_probes`, `leader_doubts`), and the
client, if it asks about certain topics, has heard that the one before it is gone.

Source: R-CTL2 (LEADER_NOT_AVAILABLE), R-CTL11, KIP-516 (topic ids).
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from storage_engine.broker.cluster.leader_doubts import LeaderProbes
from storage_engine.broker.cluster.topic_admin import RequestedTopic, TopicAdmin
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.cluster_for_clients import ClusterForClients
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import (
    INTERNAL_TOPICS,
    NO_LEADER,
    BrokerId,
    TopicPartition,
    topic_name_problem,
)
from storage_engine.net.client_log import ClientLog
from storage_engine.protocol.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from storage_engine.protocol.apis.update_metadata import UpdateMetadataPartition

log = ClientLog(__name__)


class LivePeers(NamedTuple):
    """The live brokers, and those of them that are named as leaders."""

    brokers: frozenset[BrokerId]
    leaders: frozenset[BrokerId]
    untold: frozenset[BrokerId] = frozenset()
    """Brokers of which the client does not know yet that they are gone."""
    replaced: Mapping[TopicPartition, BrokerId] = MappingProxyType({})
    """Partitions that brokers led which have just gone."""

    @classmethod
    def of(cls, cluster: ClusterForClients, listener: str) -> "LivePeers":
        """For a client that wants to know how the cluster is, not where to write."""
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
    """Whether the client may create a topic by asking for it; None where everybody may."""

    def handle(self, call: ApiCall[MetadataResponse], request: MetadataRequest) -> None:
        def respond() -> None:
            call.run(self._respond(call, request))

        self.cluster.when_known(lambda: self.probes.ask(self._named(request), respond))

    def _named(self, request: MetadataRequest) -> Iterator[str]:
        """The topics that the client asks about; none for all of the cluster."""
        yield from request.topics or ()
        for topic_id in request.topic_ids:
            # An id of no topic counts as one that is looked at.
            yield self.cluster.metadata.topic_name(topic_id) or ""

    def _respond(self, call: ApiCall[MetadataResponse], request: MetadataRequest) -> Steps:
        metadata = self.cluster.metadata
        brokers = self.cluster.brokers_at(call.connection.listener_name)
        live = LivePeers(
            frozenset(broker.broker_id for broker in brokers),
            self.cluster.leaders_among(brokers),
            # Who asks about the whole cluster wants to know how it is, not where to write. Who asks
            # about no topic hears of no leader.
            self.cluster.doubts.untold(call.connection.number)
            if request.topics or (request.topic_ids and request.topics is not None)
            else frozenset(),
            self.cluster.doubts.replaced,
        )
        topics: list[MetadataTopic] = []
        if request.topics is None:
            for topic in sorted(metadata.topics()):
                # One that is deleted meanwhile is left out.
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
        """Begins to create the topic; the client retries until it has leaders."""

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
