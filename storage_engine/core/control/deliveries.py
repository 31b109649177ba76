"""What the controller owes each broker: an outbox per broker, one delivery under way at a time.

Rule: an outbox holds names (partitions, topics), never contents; contents are filled in when a
delivery is made, so that the newest state is sent and repeats collapse. What was under way when a
delivery failed is owed again.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState, TopicInfo
from storage_engine.core.control.controller_events import (
    Delivered,
    Delivery,
    DeliveryFailed,
    PartitionLeadership,
)
from storage_engine.core.ids import BrokerId, TopicPartition


@dataclass(slots=True)
class _Outbox:
    """What one broker has to be told."""

    everything: bool = False
    brokers: bool = False
    metadata: set[TopicPartition] = field(default_factory=set)
    leadership: set[TopicPartition] = field(default_factory=set)
    removed_topics: set[str] = field(default_factory=set)
    in_flight: Delivery | None = None

    @property
    def owes(self) -> bool:
        return bool(
            self.everything
            or self.brokers
            or self.metadata
            or self.leadership
            or self.removed_topics
        )


@dataclass(slots=True)
class Deliveries:
    """Outboxes of all live brokers, and the replicas that dead and live ones have yet to delete."""

    _outboxes: dict[BrokerId, _Outbox] = field(default_factory=dict)
    _to_stop: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    _offered: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    """Those of `_to_stop` that are waited for only as long as their broker lives and can."""
    _stopping: set[str] = field(default_factory=set)
    _number: int = 0

    def owes_leadership(self, broker: BrokerId, partition: TopicPartition) -> bool:
        """Whether a broker has yet to confirm what it was last to hear of the partition."""
        outbox = self._outboxes.get(broker)
        if outbox is None:
            return False
        told = outbox.in_flight
        return (
            partition in outbox.leadership
            or outbox.everything
            or (told is not None and any(x.partition == partition for x in told.leadership))
        )

    def everything_to(self, broker: BrokerId) -> None:
        self._outbox(broker).everything = True

    def brokers_to(self, broker: BrokerId) -> None:
        self._outbox(broker).brokers = True

    def metadata_to(self, broker: BrokerId, partition: TopicPartition) -> None:
        self._outbox(broker).metadata.add(partition)

    def leadership_to(self, broker: BrokerId, partition: TopicPartition) -> None:
        self._outbox(broker).leadership.add(partition)

    def removal_to(self, broker: BrokerId, topic: str) -> None:
        self._outbox(broker).removed_topics.add(topic)

    def begin_stopping(self, topic: str) -> None:
        """`take_stopped` answers for this topic from here on; it may have no replica at all."""
        self._stopping.add(topic)

    def stop_replica(self, broker: BrokerId, partition: TopicPartition) -> None:
        """Owed until it is delivered, whether the broker lives now or returns later."""
        self._to_stop.setdefault(broker, set()).add(partition)

    def offer_stop(self, broker: BrokerId, partition: TopicPartition) -> None:
        """To a live broker that is no replica but may have been one: owed until it is delivered or
        withdrawn. Not once the topic counts as stopped: it could delete a later topic's replica."""
        stopping = partition.topic in self._stopping
        if stopping and partition not in self._to_stop.get(broker, ()):
            self._to_stop.setdefault(broker, set()).add(partition)
            self._offered.setdefault(broker, set()).add(partition)

    def withdraw_stop(self, broker: BrokerId, partition: TopicPartition) -> None:
        """What was offered can't be done; nobody waits for it."""
        if partition in self._offered.get(broker, ()):
            self._offered[broker].discard(partition)
            self.cancel_stop(broker, partition)

    def withdraw_stops(self, broker: BrokerId) -> None:
        """The broker that it was offered to is gone."""
        for partition in self._offered.pop(broker, ()):
            self.cancel_stop(broker, partition)

    def cancel_stop(self, broker: BrokerId, partition: TopicPartition) -> None:
        """The replica is wanted again, or its broker finds out by itself."""
        if owed := self._to_stop.get(broker):
            owed.discard(partition)

    def owes_stop(
        self, partition: TopicPartition, failed: Mapping[BrokerId, Set[TopicPartition]]
    ) -> bool:
        """Whether a replica has still to be deleted, other than those that can't be."""
        return any(
            partition in owed and partition not in failed.get(broker, ())
            for broker, owed in self._to_stop.items()
        )

    def forget(self, broker: BrokerId) -> None:
        """The broker is gone (or another incarnation): nothing of the old is owed, but deletions
        are."""
        self._outboxes.pop(broker, None)

    def forget_topic(self, topic: str) -> None:
        for outbox in self._outboxes.values():
            outbox.metadata = {tp for tp in outbox.metadata if tp.topic != topic}
            outbox.leadership = {tp for tp in outbox.leadership if tp.topic != topic}

    def take_stopped(self, topic: str) -> bool:
        """True once, when the last replica of a topic in deletion has been stopped."""
        if topic not in self._stopping:
            return False
        if any(tp.topic == topic for owed in self._to_stop.values() for tp in owed):
            return False
        self._stopping.discard(topic)
        return True

    def settle(self, event: Delivered | DeliveryFailed) -> None:
        """How a delivery ended."""
        if isinstance(event, Delivered):
            self.delivered(event.broker, event.delivery)
        else:
            self.failed(event.broker, event.delivery)

    def delivered(self, broker: BrokerId, delivery: Delivery) -> None:
        outbox = self._outboxes.get(broker)
        if outbox is None or outbox.in_flight is None or outbox.in_flight.number != delivery.number:
            return
        outbox.in_flight = None
        if owed := self._to_stop.get(broker):
            owed.difference_update(delivery.stop)
            self._offered.get(broker, set()).difference_update(delivery.stop)
            if not owed:
                del self._to_stop[broker]

    def failed(self, broker: BrokerId, delivery: Delivery) -> None:
        outbox = self._outboxes.get(broker)
        if outbox is None or outbox.in_flight is None or outbox.in_flight.number != delivery.number:
            return
        outbox.in_flight = None
        outbox.everything |= delivery.full
        outbox.brokers |= bool(delivery.brokers)
        outbox.metadata.update(item.partition for item in delivery.metadata)
        outbox.leadership.update(item.partition for item in delivery.leadership)
        outbox.removed_topics.update(delivery.removed_topics)

    def next_for(
        self,
        brokers: Mapping[BrokerId, BrokerInfo],
        topics: Mapping[str, TopicInfo],
        states: Mapping[TopicPartition, PartitionState],
        deleting: Set[str],
        *,
        replicas: Callable[[TopicPartition, TopicInfo], tuple[BrokerId, ...] | None],
        unled: Set[TopicPartition],
        failed: Mapping[BrokerId, Set[TopicPartition]],
    ) -> Iterator[tuple[BrokerId, Delivery]]:
        """A delivery for each broker that is owed something and has none under way.

        `replicas` are those that count. The leadership of `unled` is told to nobody; a newer state
        of each will be. Replicas that `failed` can't be deleted before their broker has been
        restarted.
        """

        def contents(partitions: Set[TopicPartition]) -> tuple[PartitionLeadership, ...]:
            return _contents(partitions, topics, states, deleting, replicas, failed)

        for broker, info in brokers.items():
            outbox = self._outbox(broker)
            stop = self._to_stop.get(broker, set()) - failed.get(broker, set())
            if outbox.in_flight is not None or not (outbox.owes or stop):
                continue
            if outbox.everything:
                metadata = {tp for tp in states if tp.topic not in deleting}
                leadership = {
                    tp
                    for tp in metadata
                    if tp.topic in topics and broker in (replicas(tp, topics[tp.topic]) or ())
                }
            else:
                metadata, leadership = outbox.metadata, outbox.leadership
            self._number += 1
            delivery = Delivery(
                number=self._number,
                broker_epoch=info.epoch,
                brokers=tuple(brokers.values()),
                metadata=contents(metadata),
                removed_topics=tuple(sorted(outbox.removed_topics)),
                leadership=contents(leadership - unled),
                full=outbox.everything,
                stop=tuple(sorted(stop)),
            )
            self._outboxes[broker] = _Outbox(in_flight=delivery)
            yield broker, delivery

    def _outbox(self, broker: BrokerId) -> _Outbox:
        return self._outboxes.setdefault(broker, _Outbox())


def _contents(
    partitions: Set[TopicPartition],
    topics: Mapping[str, TopicInfo],
    states: Mapping[TopicPartition, PartitionState],
    deleting: Set[str],
    replicas: Callable[[TopicPartition, TopicInfo], tuple[BrokerId, ...] | None],
    failed: Mapping[BrokerId, Set[TopicPartition]],
) -> tuple[PartitionLeadership, ...]:
    result = []
    for tp in sorted(partitions):
        info = topics.get(tp.topic)
        state = states.get(tp)
        if info is None or state is None or tp.topic in deleting:
            continue
        assigned = replicas(tp, info)
        if assigned is not None:
            result.append(
                PartitionLeadership(
                    partition=tp,
                    topic_id=info.topic_id,
                    state=state,
                    assigned=assigned,
                    failed=tuple(b for b in assigned if tp in failed.get(b, ())),
                )
            )
    return tuple(result)
