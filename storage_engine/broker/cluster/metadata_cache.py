"""The cluster as the controller last described it to this broker: the source of Metadata
answers.

Only UpdateMetadata changes it. Source: R-CTL5.
"""

from collections.abc import Callable, Collection, Iterator
from uuid import UUID

from storage_engine.broker import unexpected
from storage_engine.broker.cluster.order_gate import FullOrder
from storage_engine.core.control.cluster_state import ONLY_LISTENER, BrokerInfo
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.placement import ReplicaCounts
from storage_engine.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)

_NOTHING: dict[int, UpdateMetadataPartition] = {}
"""The partitions of an unknown topic; never changed."""


class _Topics:
    """Topics and partitions, and the ids of the topics."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[int, UpdateMetadataPartition]] = {}
        self.ids: dict[str, UUID] = {}
        self.names: dict[UUID, str] = {}
        self.counts = ReplicaCounts()
        self.replaced: list[tuple[TopicPartition, BrokerId]] = []
        """Partitions of the update under way whose former leader is gone, with that leader."""

    def remove(self, topic: str) -> None:
        for item in self.partitions.pop(topic, _NOTHING).values():
            self.counts.remove(item.replicas)
        self._forget_id(topic)

    def put(self, item: UpdateMetadataPartition) -> None:
        of_topic = self.partitions.setdefault(item.topic, {})
        before = of_topic.get(item.partition)
        of_topic[item.partition] = item
        if before is None or before.replicas != item.replicas:
            if before is not None:
                self.counts.remove(before.replicas)
            self.counts.add(item.replicas)
        if self.ids.get(item.topic) != item.topic_id:
            # Created again: its old id is that of no topic any more.
            self._forget_id(item.topic)
            self.ids[item.topic] = item.topic_id
            if item.topic_id.int:
                # Zeros are the id of all topics whose ids are lost: they name none of them.
                self.names[item.topic_id] = item.topic

    def _forget_id(self, topic: str) -> None:
        """Another topic may have taken over the id, because it was renamed in ZooKeeper."""
        topic_id = self.ids.pop(topic, None)
        if topic_id is not None and self.names.get(topic_id) == topic:
            del self.names[topic_id]


class MetadataCache:
    """Brokers, topics and partitions."""

    def __init__(self, inter_broker_listener: str = ONLY_LISTENER) -> None:
        self.controller_id = BrokerId(-1)
        self.brokers: dict[BrokerId, BrokerInfo] = {}
        """The live brokers, with the addresses by which this broker connects to them."""
        self.on_departed: Callable[[BrokerInfo], None] = lambda broker: None
        """Called with each broker that an update leaves out."""
        self.on_leader_replaced: Callable[[TopicPartition, BrokerId], None] = lambda _tp, _id: None
        """Called after `on_departed` with each partition whose leader is gone, whether or not it
        has a successor, and with that leader."""
        self.on_topics_named: Callable[[Collection[str] | None], None] = lambda _names: None
        """Called with the topics that an update names, which may be as they were; None: all."""
        self._inter_broker_listener = inter_broker_listener
        self._known = _Topics()
        self._full_order = FullOrder()
        self._coming = _Topics()
        """The content of a full order's parts so far; not visible before the last part."""
        self._waiting: dict[Callable[[], None], None] = {}

    def on_first_update(self, act: Callable[[], None]) -> None:
        """Run `act` after the first update, which names the whole cluster."""
        self._waiting[act] = None

    def wait_no_longer(self, act: Callable[[], None]) -> None:
        """Cancel a call that `on_first_update` would make."""
        self._waiting.pop(act, None)

    @property
    def is_initialized(self) -> bool:
        """Return True once a controller has sent an update."""
        return self.controller_id >= 0

    def update(self, request: UpdateMetadataRequest) -> None:
        """Applies an UpdateMetadata request. Raises KafkaError for a part whose predecessors are
        missing."""
        known = self._known
        if request.full:
            if not self._full_order.expects(request):
                raise KafkaError(
                    f"part {request.part} of order {request.order_number} came without those before"
                )
            known = self._coming if request.part else _Topics()
        for topic in request.removed_topics:
            known.remove(topic)
        live = {broker.broker_id for broker in request.brokers}
        for item in request.partitions:
            former = self._former_leader(item)
            if former is not None and former not in live:
                known.replaced.append((TopicPartition(item.topic, item.partition), former))
            known.put(item)
        if request.full:
            self._full_order.took(request)
            self._coming = known
            if request.goes_on:
                return
            self._known, self._coming = known, _Topics()
        replaced, known.replaced = known.replaced, []
        self._take_brokers(request)
        for partition, former in replaced:
            self.on_leader_replaced(partition, former)
        if request.full or request.removed_topics or request.partitions:
            named = {*request.removed_topics, *(item.topic for item in request.partitions)}
            self.on_topics_named(None if request.full else named)
        waiting, self._waiting = self._waiting, {}
        for act in waiting:
            try:
                act()
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are answered
                unexpected.report("request that waited for metadata", error)

    def _take_brokers(self, request: UpdateMetadataRequest) -> None:
        self.controller_id = request.controller_id
        before = self.brokers
        self.brokers = {b.broker_id: self._broker(b) for b in request.brokers}
        for broker_id in before.keys() - self.brokers.keys():
            self.on_departed(before[broker_id])

    def _former_leader(self, item: UpdateMetadataPartition) -> BrokerId | None:
        """The leader of the partition until this update; None if the update does not change it."""
        before = self._known.partitions.get(item.topic, _NOTHING).get(item.partition)
        return None if before is None or before.leader == item.leader else before.leader

    def _broker(self, sent: UpdateMetadataBroker) -> BrokerInfo:
        broker = BrokerInfo(
            broker_id=sent.broker_id,
            host=sent.host,
            port=sent.port,
            rack=sent.rack,
            epoch=sent.epoch,
            endpoints=sent.endpoints,
        )
        # The controller may use another listener than this broker, in a rolling change of it.
        return broker.at(self._inter_broker_listener) or broker

    def __contains__(self, topic: str) -> bool:
        return topic in self._known.partitions

    def topics(self) -> Iterator[str]:
        return iter(self._known.partitions)

    def partitions(self, topic: str) -> dict[int, UpdateMetadataPartition] | None:
        """Partition id -> state; None for an unknown topic."""
        return self._known.partitions.get(topic)

    def topic_id(self, topic: str) -> UUID | None:
        return self._known.ids.get(topic)

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._known.names.get(topic_id)

    def is_current(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Whether this is the registered incarnation of a live broker (KIP-903)."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker_epoch == broker.epoch

    def replica_counts(self) -> ReplicaCounts:
        """The replicas of each broker; a copy."""
        return self._known.counts.copy()
