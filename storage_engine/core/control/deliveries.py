"""The orders that the controller has yet to deliver: each broker has an outbox, and at most one
delivery under way.

An outbox holds names (partitions, topics), never contents; contents are filled in when a delivery
is made, so that the newest state is sent and repeats collapse. When a delivery fails, its content
goes back into the outbox.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from storage_engine.core.control.cluster_state import (
    BrokerInfo,
    ControlledCluster,
    ControlledPartition,
)
from storage_engine.core.control.controller_events import (
    Deliver,
    DeliveryFailed,
    DeliveryMade,
    OrderDelivery,
    PartitionLeadership,
)
from storage_engine.core.ids import BrokerId, TopicPartition


@dataclass(slots=True)
class _Outbox:
    everything: bool = False
    brokers: bool = False
    metadata: set[TopicPartition] = field(default_factory=set)
    leadership: set[TopicPartition] = field(default_factory=set)
    removed_topics: set[str] = field(default_factory=set)
    in_flight: OrderDelivery | None = None
    sent_leadership: frozenset[TopicPartition] = frozenset()
    """The partitions whose leadership is in the delivery under way."""

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
class _Shared:
    """The contents that the deliveries of one step share, built once."""

    brokers: tuple[BrokerInfo, ...]
    is_filled: bool = False
    names: set[TopicPartition] | None = None
    """The partitions in `metadata`; None: all."""
    metadata: tuple[PartitionLeadership, ...] = ()
    held: dict[BrokerId, list[PartitionLeadership]] | None = None
    """For each broker, the partitions that it has to lead or follow, out of those of a full
    delivery."""

    def is_of(self, names: set[TopicPartition] | None) -> bool:
        return self.is_filled and self.names == names


class Deliveries:
    """The outboxes of all live brokers, and the replicas that brokers, dead or alive, have yet to
    delete."""

    def __init__(self, cluster: ControlledCluster) -> None:
        """`cluster` is only read."""
        self._cluster = cluster
        self._outboxes: dict[BrokerId, _Outbox] = {}
        self._to_stop: dict[BrokerId, set[TopicPartition]] = {}
        self._offered: dict[BrokerId, set[TopicPartition]] = {}
        """The part of `_to_stop` that the deletion waits for only while the broker lives and can
        delete."""
        self.stopping: set[str] = set()
        """Topics in deletion whose end `take_stopped` has not returned yet."""
        self._number = 0
        self._settled: dict[BrokerId, int] = {}
        """For each broker, a number of a delivery: nobody waits any more for this one or an earlier
        one, because it was made, or has failed, or the broker is gone."""

    def owes_leadership(self, broker: BrokerId, partition: TopicPartition) -> bool:
        """Return True while the broker has not confirmed the partition's leadership, sent already
        or not."""
        outbox = self._outboxes.get(broker)
        if outbox is None:
            return False
        return (
            partition in outbox.leadership
            or outbox.everything
            or partition in outbox.sent_leadership
        )

    def owed_now(self) -> dict[BrokerId, int]:
        """Return, for each broker that is owed something, the number of the delivery that brings
        all of it, or of an earlier one where a failure puts that off."""
        owed = {}
        for broker, outbox in self._outboxes.items():
            if outbox.owes:
                owed[broker] = self._number + 1
            elif outbox.in_flight is not None:
                owed[broker] = outbox.in_flight.number
        return owed

    def are_settled(self, owed: Mapping[BrokerId, int]) -> bool:
        """Return True when each of these brokers has had what it was owed, or was gone or failed to
        take a delivery since then."""
        return all(self._settled.get(broker, 0) >= number for broker, number in owed.items())

    def everything_to(self, broker: BrokerId) -> None:
        self._outbox(broker).everything = True

    def brokers_to_all(self) -> None:
        """Send all registered brokers to every broker."""
        for broker in self._cluster.brokers:
            self._outbox(broker).brokers = True

    def metadata_to_all(self, partition: ControlledPartition) -> None:
        """Send the partition's state to every broker, for its answers to Metadata requests."""
        for broker in self._cluster.brokers:
            self._outbox(broker).metadata.add(partition.name)

    def announce(self, partition: ControlledPartition) -> None:
        """Send the partition's new state: to its replicas as leadership, to all brokers as
        metadata."""
        for replica in partition.replicas:
            if replica in self._cluster.brokers:
                self._outbox(replica).leadership.add(partition.name)
        self.metadata_to_all(partition)

    def removal_to_all(self, topic: str) -> None:
        for broker in self._cluster.brokers:
            self._outbox(broker).removed_topics.add(topic)

    def stop_replica(self, broker: BrokerId, partition: TopicPartition) -> None:
        """Order the broker to delete its replica. The order stays until it is delivered, even if
        the broker is away meanwhile."""
        self._to_stop.setdefault(broker, set()).add(partition)

    def offer_stops(self, broker: BrokerId, topic: str) -> None:
        """Order a live broker that is no replica of a topic in deletion to delete the replicas that
        it may still have. It can't learn of them from the topic's metadata, which is not sent any
        more.

        The order stays until it is delivered or withdrawn. Once the topic counts as stopped, none
        is given: the broker could delete the replica of a later topic of the same name."""
        if topic not in self.stopping:
            return
        for partition in self._cluster.topics[topic].partitions.values():
            name = partition.name
            if broker not in partition.failed and name not in self._to_stop.get(broker, ()):
                self._to_stop.setdefault(broker, set()).add(name)
                self._offered.setdefault(broker, set()).add(name)

    def withdraw_stop(self, broker: BrokerId, partition: TopicPartition) -> None:
        """Withdraw an offer that can't be carried out; the deletion stops waiting for it."""
        if partition in self._offered.get(broker, ()):
            self._offered[broker].discard(partition)
            self.cancel_stop(broker, partition)

    def cancel_stop(self, broker: BrokerId, partition: TopicPartition) -> None:
        """Take back a deletion: the replica is wanted again, or its broker finds out by itself."""
        if owed := self._to_stop.get(broker):
            owed.discard(partition)

    def owes_stop(self, partition: ControlledPartition) -> bool:
        """Return True while a replica has still to be deleted, other than those that can't be."""
        return any(
            partition.name in owed and broker not in partition.failed
            for broker, owed in self._to_stop.items()
        )

    def take_stopped(self, topic: str) -> bool:
        """Return True once, when the last replica of a topic in deletion has been stopped."""
        if topic not in self.stopping:
            return False
        if any(tp.topic == topic for owed in self._to_stop.values() for tp in owed):
            return False
        self.stopping.discard(topic)
        return True

    def forget(self, broker: BrokerId) -> None:
        """Forget what is owed to a broker, or to its former incarnation, except deletions that were
        not mere offers."""
        self._outboxes.pop(broker, None)
        self._settle_all(broker)
        for partition in self._offered.pop(broker, ()):
            self.cancel_stop(broker, partition)

    def forget_topic(self, topic: str) -> None:
        """Send nothing more of the topic; its deletions stay owed."""
        for outbox in self._outboxes.values():
            outbox.metadata = {tp for tp in outbox.metadata if tp.topic != topic}
            outbox.leadership = {tp for tp in outbox.leadership if tp.topic != topic}

    def settle(self, event: DeliveryMade | DeliveryFailed) -> None:
        """Record how a delivery ended; an event about one that is not under way any more is
        ignored."""
        broker, delivery = event.broker, event.delivery
        outbox = self._outboxes.get(broker)
        if outbox is None or outbox.in_flight is None or outbox.in_flight.number != delivery.number:
            return
        outbox.in_flight, outbox.sent_leadership = None, frozenset()
        if isinstance(event, DeliveryMade):
            self._settled[broker] = delivery.number
            self._note_stopped(broker, delivery)
        else:
            _owe_again(outbox, delivery)
            self._settle_all(broker)

    def _settle_all(self, broker: BrokerId) -> None:
        """End all waits for the broker. The number taken here belongs to no delivery, so that each
        later delivery has a higher one."""
        self._number += 1
        self._settled[broker] = self._number

    def _note_stopped(self, broker: BrokerId, delivery: OrderDelivery) -> None:
        if owed := self._to_stop.get(broker):
            owed.difference_update(delivery.stop)
            self._offered.get(broker, set()).difference_update(delivery.stop)
            if not owed:
                del self._to_stop[broker]

    def next_effects(self) -> Iterator[Deliver]:
        """Return a delivery for each broker that is owed something and has none under way. Brokers
        that are owed the same metadata get the same tuple."""
        shared = _Shared(tuple(self._cluster.brokers.values()))
        for broker, info in self._cluster.brokers.items():
            outbox = self._outbox(broker)
            if outbox.in_flight is not None:
                continue
            # A failed replica can't be deleted before its broker has been restarted.
            stop = [tp for tp in self._to_stop.get(broker, ()) if not self._has_failed(broker, tp)]
            if outbox.owes or stop:
                delivery = self._delivery(info, outbox, sorted(stop), shared)
                sent = frozenset(item.partition for item in delivery.leadership)
                self._outboxes[broker] = _Outbox(in_flight=delivery, sent_leadership=sent)
                yield Deliver(broker=broker, delivery=delivery)

    def _delivery(
        self,
        broker: BrokerInfo,
        outbox: _Outbox,
        stop: Iterable[TopicPartition],
        shared: "_Shared",
    ) -> OrderDelivery:
        names = None if outbox.everything else outbox.metadata
        if not shared.is_of(names):
            known = self._cluster.partitions() if names is None else self._known(names)
            shared.names, shared.metadata = names, self._contents(known)
            shared.is_filled = True
        if names is None:
            if shared.held is None:
                shared.held = self._by_replica(shared.metadata)
            leadership = tuple(shared.held.get(broker.broker_id, ()))
        else:
            leadership = self._contents(
                p for p in self._known(outbox.leadership) if not p.leader_has_bounced
            )
        self._number += 1
        return OrderDelivery(
            number=self._number,
            broker_epoch=broker.epoch,
            brokers=shared.brokers,
            metadata=shared.metadata,
            removed_topics=tuple(sorted(outbox.removed_topics)),
            leadership=leadership,
            full=outbox.everything,
            stop=tuple(stop),
        )

    def _by_replica(
        self, everything: Iterable[PartitionLeadership]
    ) -> dict[BrokerId, list[PartitionLeadership]]:
        """Return the partitions of each broker, in the same order. Partitions whose leader has
        restarted are left out: a newer state of them will be written, and sent."""
        held: dict[BrokerId, list[PartitionLeadership]] = {}
        for item in everything:
            partition = self._cluster.partition(item.partition)
            if partition is not None and not partition.leader_has_bounced:
                for replica in item.assigned:
                    held.setdefault(replica, []).append(item)
        return held

    def _known(self, names: Iterable[TopicPartition]) -> Iterator[ControlledPartition]:
        for name in names:
            partition = self._cluster.partition(name)
            if partition is not None:
                yield partition

    def _contents(
        self, partitions: Iterable[ControlledPartition]
    ) -> tuple[PartitionLeadership, ...]:
        """Return the partitions that have a state and are not being deleted, sorted."""
        topics = self._cluster.topics
        return tuple(
            PartitionLeadership(
                partition=partition.name,
                topic_id=topics[partition.name.topic].info.topic_id,
                state=partition.state,
                assigned=partition.replicas,
                failed=tuple(b for b in partition.replicas if b in partition.failed),
            )
            for partition in sorted(partitions, key=lambda each: each.name)
            if partition.state is not None and not topics[partition.name.topic].deleting
        )

    def _has_failed(self, broker: BrokerId, name: TopicPartition) -> bool:
        partition = self._cluster.partition(name)
        return partition is not None and broker in partition.failed

    def _outbox(self, broker: BrokerId) -> _Outbox:
        return self._outboxes.setdefault(broker, _Outbox())


def _owe_again(outbox: _Outbox, delivery: OrderDelivery) -> None:
    outbox.everything |= delivery.full
    outbox.brokers |= bool(delivery.brokers)
    outbox.metadata.update(item.partition for item in delivery.metadata)
    outbox.leadership.update(item.partition for item in delivery.leadership)
    outbox.removed_topics.update(delivery.removed_topics)
