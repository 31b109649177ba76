"""Orders of a controller that have more items than a broker reads of one request: they come in
parts, and nothing is missing from what a broker knows and hosts before, between and after them."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker import dispatcher
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.controller import delivery_requests
from storage_engine.broker.controller.delivery_requests import PART_ITEMS, OrderSender, rounds_of
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState
from storage_engine.core.control.controller_events import OrderDelivery, PartitionLeadership
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from storage_engine.protocol.apis import leader_and_isr, stop_replica, update_metadata
from storage_engine.protocol.apis.spec import MAX_ITEMS
from storage_engine.tests.sampling import ALL_FAULTS

COUNT = 30
EVERY = [TopicPartition("t", number) for number in range(COUNT)]
MOST_ITEMS = 70
"""Ten partitions."""

ORDERS = frozenset((4, 5, 6))
SENDER = OrderSender(BrokerId(1), ControllerEpoch(1))
REPLICAS = tuple(BrokerId(b) for b in (1, 2, 3))


def broker(number: int) -> BrokerInfo:
    epoch = BrokerEpoch(number)
    return BrokerInfo(broker_id=BrokerId(number), host="h", port=9092, rack=None, epoch=epoch)


def leadership(tp: TopicPartition) -> PartitionLeadership:
    state = PartitionState(
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(3),
        isr=REPLICAS,
        partition_epoch=PartitionEpoch(5),
        controller_epoch=ControllerEpoch(1),
        joined_epochs={b: BrokerEpoch(b) for b in REPLICAS},
    )
    topic_id = UUID(int=hash(tp.topic) & (1 << 64) - 1)
    return PartitionLeadership(
        partition=tp, topic_id=topic_id, state=state, assigned=REPLICAS, failed=()
    )


def delivery_of(count: int, **more: Any) -> OrderDelivery:
    told = tuple(leadership(TopicPartition(f"t{n // 100}", n % 100)) for n in range(count))
    return OrderDelivery(
        number=7,
        broker_epoch=BrokerEpoch(1),
        brokers=tuple(broker(b) for b in REPLICAS),
        metadata=told,
        leadership=told,
        **more,
    )


def read(delivery: OrderDelivery) -> Iterator[Any]:
    """The requests as a broker reads them."""
    for requests in rounds_of(SENDER, delivery):
        for spec, message in requests:
            body = memoryview(b"".join(spec.encode_request(0, message)))
            yield spec.decode_request(0, body)


@pytest.mark.parametrize(
    ("count", "full"),
    [(26_000, False), (200_000, True)] if ALL_FAULTS else [(2_600, False), (26_000, True)],
)
def test_a_large_cluster_is_told_with_requests_that_can_be_read(count, full, monkeypatch):
    if count < 25_000:
        # It would fit in one request.
        monkeypatch.setattr(delivery_requests, "MAX_ITEMS", MAX_ITEMS // 10)
        monkeypatch.setattr(delivery_requests, "PART_ITEMS", PART_ITEMS // 10)
    delivery = delivery_of(count, full=full, stop=tuple(EVERY))
    known, led, stopped, parts = MetadataCache(), set(), set(), []
    for request in read(delivery):
        if isinstance(request, update_metadata.UpdateMetadataRequest):
            known.update(request)
            assert len(request.brokers) == 3
        elif isinstance(request, leader_and_isr.LeaderAndIsrRequest):
            led |= {TopicPartition(item.topic, item.partition) for item in request.partitions}
            assert [leader.broker_id for leader in request.live_leaders] == [1]
            parts.append((request.full, request.part, request.goes_on))
        else:
            assert isinstance(request, stop_replica.StopReplicaRequest)
            stopped |= {TopicPartition(item.topic, item.partition) for item in request.partitions}
    assert sum(len(known.partitions(topic) or {}) for topic in known.topics()) == count
    assert led == {item.partition for item in delivery.leadership} and stopped == set(EVERY)
    assert len(parts) > 1
    assert parts == (
        [(True, number, number + 1 < len(parts)) for number in range(len(parts))]
        if full
        else [(False, 0, False)] * len(parts)
    )


def test_what_fits_in_one_request_is_sent_in_one():
    # Seven items a partition, ten with the incarnations that joined: 25,000 fit.
    (requests,) = rounds_of(SENDER, delivery_of(24_999, full=True, removed_topics=("gone",)))
    assert len(requests) == 2
    assert not any(request.message.goes_on for request in requests)


def test_nothing_is_missing_before_the_last_part_is_here(monkeypatch):
    monkeypatch.setattr(delivery_requests, "MAX_ITEMS", MOST_ITEMS)
    monkeypatch.setattr(delivery_requests, "PART_ITEMS", MOST_ITEMS - 3)
    cache = MetadataCache()
    parts = [
        request.message
        for requests in rounds_of(SENDER, delivery_of(COUNT, full=True))
        for request in requests
        if request.spec is update_metadata.API
    ]
    assert len(parts) > 3
    heard = []
    cache.on_first_update(lambda: heard.append(len(cache.partitions("t0") or {})))
    for part in parts:
        assert not heard and not cache.is_initialized
        cache.update(part)
    assert heard == [COUNT]
    # Told anew by the next controller, who dies on the way: what is known stays.
    for part in parts[:-1]:
        cache.update(part)
        assert len(cache.partitions("t0") or {}) == COUNT
    # A part that follows others than those that are here tells nothing.
    cache.update(parts[0])
    with pytest.raises(KafkaError, match="without those before"):
        cache.update(parts[2])
    assert len(cache.partitions("t0") or {}) == COUNT


# --- brokers that read no more than a few items of a request ---


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Iterator[SimulatedCluster]:
    monkeypatch.setattr(delivery_requests, "MAX_ITEMS", MOST_ITEMS)
    monkeypatch.setattr(delivery_requests, "PART_ITEMS", MOST_ITEMS - 3)
    monkeypatch.setattr(dispatcher, "MAX_ITEMS", MOST_ITEMS)
    monkeypatch.setattr(dispatcher, "INLINE_ITEMS", 20)
    made = SimulatedCluster(tmp_path, default_replication_factor="3")
    assert made.create_topic("t", COUNT).error_code == 0
    check_whole(made)
    yield made
    made.close()


def hosted(broker: Any) -> int:
    replicas = broker.replicas
    found = [replicas.get(tp) for tp in EVERY]
    return sum(each is not None and each.role in (Role.LEADER, Role.FOLLOWER) for each in found)


def check_whole(cluster: SimulatedCluster) -> None:
    for tp in EVERY:
        cluster.wait_in_sync(tp, 1, 2, 3)
    for broker in cluster.brokers:
        cluster.loop.run_until(lambda broker=broker: hosted(broker) == COUNT)
        assert len(broker.metadata.partitions("t")) == COUNT
    for tp in EVERY[::7]:
        cluster.produced(tp, b"x")


def test_brokers_come_back_and_topics_go_with_orders_in_parts(cluster):
    check_whole(cluster)
    for number in (1, 2, 3):
        cluster[number].kill(session_ends_at_once=True)
        cluster.loop.run_for(500)
        cluster[number].start()
        check_whole(cluster)
    cluster.answer(cluster.delete_topic("t"))
    cluster.loop.run_until(
        lambda: not any(tp in b.logs.logs for tp in EVERY for b in cluster.brokers)
    )


class Watcher:
    """Looks at some brokers whenever a broker sends anything, and makes trouble at one order."""

    def __init__(self, cluster: SimulatedCluster, brokers: list[Any], step: int, kills: bool):
        self.cluster, self.brokers, self.step, self.kills = cluster, brokers, step, kills
        self.are_parts: list[bool] = []
        """For each order, whether it is a part of one."""
        self.troubled = 0
        """The sender of the order that was troubled."""
        self.missing: set[tuple[int, int, int]] = set()
        for sender in brokers:
            sender.transport.request = self._watched(sender)

    def _watched(self, sender: Any) -> Any:
        send = sender.transport.request

        def request(
            endpoint: Any, channel: str, spec: Any, version: int, message: Any, **more: Any
        ):
            self._look()
            if spec.key in ORDERS:
                self.are_parts.append(bool(message.part or message.goes_on))
                if len(self.are_parts) == self.step:
                    self.troubled = sender.id
                    self.cluster.loop.call_soon(lambda: self._upset(sender, endpoint.broker_id))
            send(endpoint, channel, spec, version, message, **more)

        return request

    def _look(self) -> None:
        for each in self.brokers:
            known = len(each.metadata.partitions("t") or {})
            is_new = self.kills and each.id == self.troubled
            if not is_new and (hosted(each), known) != (COUNT, COUNT):
                self.missing.add((each.id, hosted(each), known))

    def _upset(self, sender: Any, receiver: int) -> None:
        if self.kills:
            sender.kill(session_ends_at_once=True)
        else:
            self.cluster.network.reset(sender.id, receiver)


EVERY_STEP = range(1, 40, 3)
TROUBLES = [
    *((step, True) for step in EVERY_STEP[:: 1 if ALL_FAULTS else 4]),
    *((step, False) for step in EVERY_STEP[0 if ALL_FAULTS else 2 :: 1 if ALL_FAULTS else 4]),
]
"""The order, and whether its sender dies or the connection breaks; by default by turns, at every
second of the orders."""


@pytest.mark.parametrize(("step", "kills"), TROUBLES)
def test_an_order_that_ends_between_two_parts_takes_nothing_from_a_broker(cluster, step, kills):
    """Everything is said anew, in parts; what a broker hosts and knows it keeps."""
    first = cluster.controller
    others = [b for b in cluster.brokers if b is not first]
    first.kill(session_ends_at_once=True)
    # Of the two that go on, one tells the other and itself everything.
    watcher = Watcher(cluster, others, step, kills)
    cluster.loop.run_for(2000)
    first.start()
    cluster.loop.run_for(3000)
    for each in cluster.brokers:
        if not each.up:
            each.start()
    check_whole(cluster)
    assert not watcher.missing
    assert watcher.troubled and sum(watcher.are_parts) > 10
