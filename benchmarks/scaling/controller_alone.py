"""A controller without brokers and ZooKeeper: what it computes and encodes, at any size.

Writes are answered in the parts in which they are sent, deliveries once some of these parts are
written, as over a network. Only this thread's processor time is measured.
"""

import time
from collections import deque
from collections.abc import Iterator
from uuid import UUID

from benchmarks.scaling.steps import Figure
from benchmarks.support.rounds import rounded
from storage_engine.broker.controller.delivery_requests import (
    ORDER_VERSION,
    MetadataParts,
    OrderSender,
    rounds_of,
)
from storage_engine.broker.controller.store import PARTITIONS_PER_MULTI
from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState, TopicInfo
from storage_engine.core.control.controller import Controller
from storage_engine.core.control.controller_events import (
    BrokersChanged,
    ContinueElections,
    Deliver,
    DeliveryMade,
    Effect,
    ElectionsContinued,
    Event,
    Loaded,
    StatesWritten,
    StateWrite,
    WriteOutcome,
    WriteStates,
)
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from storage_engine.protocol.framing import encode_request_frame

PARTITIONS_PER_TOPIC = 1000
REPLICAS = 3
PARTS_PER_ROUND_TRIP = 10
"""The parts of writes that ZooKeeper answers while a broker answers a delivery: some 10 ms."""


class _Driven:
    """Answers the controller's effects, and counts the requests that it sends."""

    def __init__(self) -> None:
        self.core = Controller(controller_epoch=ControllerEpoch(2))
        self._sender = OrderSender(BrokerId(1), ControllerEpoch(2))
        self._shared = MetadataParts()
        self._parts: deque[tuple[StateWrite, ...]] = deque()
        self._sent: deque[Deliver] = deque()
        self._goes_on = False
        """Whether more elections are due, in another turn."""
        self.requests = self.sent_bytes = 0
        self.longest_step_s = 0.0

    def run(self, event: Event) -> None:
        """Handle an event and all that follows from it."""
        self._step(event)
        while self._parts or self._sent or self._goes_on:
            if self._goes_on:
                self._goes_on = False
                self._step(ElectionsContinued())
            for _ in range(min(PARTS_PER_ROUND_TRIP, len(self._parts))):
                part = self._parts.popleft()
                outcomes = {w.partition: (WriteOutcome.ACCEPTED, w.state) for w in part}
                self._step(StatesWritten(outcomes=outcomes))
            for _ in range(len(self._sent)):
                made = self._sent.popleft()
                self._step(DeliveryMade(broker=made.broker, delivery=made.delivery))

    def _step(self, event: Event) -> None:
        started_s = time.thread_time()
        effects = self.core.step(event)
        self.longest_step_s = max(self.longest_step_s, time.thread_time() - started_s)
        self._take(effects)

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ContinueElections):
                self._goes_on = True
            elif isinstance(effect, WriteStates):
                for start in range(0, len(effect.writes), PARTITIONS_PER_MULTI):
                    self._parts.append(effect.writes[start : start + PARTITIONS_PER_MULTI])
            elif isinstance(effect, Deliver):
                self._sent.append(effect)
                for requests in rounds_of(self._sender, effect.delivery, self._shared):
                    for spec, message in requests:
                        frame = encode_request_frame(spec, ORDER_VERSION, 0, "", message)
                        self.requests += 1
                        self.sent_bytes += sum(map(len, frame))


def measure_controller(partitions: int, brokers: int) -> Iterator[Figure]:
    """Measure loading a cluster as a new controller, and the loss of one of its brokers."""
    driven = _Driven()
    live = {BrokerId(b): _broker(b) for b in range(1, brokers + 1)}
    topics, states = _cluster(partitions, brokers)
    loaded = Loaded(brokers=live, topics=topics, states=states)
    yield from _figures("new controller: compares all, tells all brokers", driven, loaded)
    left = {broker: info for broker, info in live.items() if broker != brokers}
    yield from _figures("a broker is lost", driven, BrokersChanged(brokers=left))


def _figures(what: str, driven: _Driven, event: Event) -> Iterator[Figure]:
    driven.requests = driven.sent_bytes = 0
    driven.longest_step_s = 0.0
    started_s = time.thread_time()
    driven.run(event)
    yield Figure(what=what, brokers_cpu_s=rounded(time.thread_time() - started_s))
    longest_ms = rounded(driven.longest_step_s * 1000)
    yield Figure(what=f"{what}: longest step", amount=longest_ms, unit="ms")
    yield Figure(what=f"{what}: requests", amount=driven.requests, unit="requests")
    yield Figure(what=f"{what}: sent", amount=rounded(driven.sent_bytes / 1e6), unit="MB")


def _broker(number: int) -> BrokerInfo:
    return BrokerInfo(
        broker_id=BrokerId(number), host=f"broker-{number}", port=9092, epoch=BrokerEpoch(number)
    )


def _cluster(
    partitions: int, brokers: int
) -> tuple[dict[str, TopicInfo], dict[TopicPartition, PartitionState]]:
    topics: dict[str, TopicInfo] = {}
    states: dict[TopicPartition, PartitionState] = {}
    for first in range(0, partitions, PARTITIONS_PER_TOPIC):
        topic = f"topic-{first // PARTITIONS_PER_TOPIC}"
        assignment = {}
        for number in range(min(PARTITIONS_PER_TOPIC, partitions - first)):
            replicas = tuple(BrokerId(1 + (first + number + n) % brokers) for n in range(REPLICAS))
            assignment[number] = replicas
            states[TopicPartition(topic, number)] = PartitionState(
                leader=replicas[0],
                leader_epoch=LeaderEpoch(0),
                isr=replicas,
                controller_epoch=ControllerEpoch(1),
                partition_epoch=PartitionEpoch(0),
                joined_epochs={replica: BrokerEpoch(replica) for replica in replicas},
            )
        topics[topic] = TopicInfo(topic=topic, topic_id=UUID(int=first + 1), assignment=assignment)
    return topics, states
