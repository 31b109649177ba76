"""A whole cluster in one process and in simulated time, and a client that waits for its answers.

Everything happens in `loop`; a caller that waits runs it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from simulation.world.broker import SimulatedBroker
from simulation.world.clock import SimulatedLoop
from simulation.world.disk import SimulatedDisk
from simulation.world.network import CLIENT, OnReply, SimulatedNetwork
from simulation.world.processes import SimulatedMachine
from simulation.world.requests import (
    ANSWER_MS,
    create_topic_request,
    fetch_request,
    make_batch,
    produce_request,
)
from simulation.world.zookeeper import SimulatedZooKeeper
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.core.security.principal import Principal
from storage_engine.log.files.disk import REAL_DISK, Disk
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchResponse
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProduceResponse
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages import alter_partition_reassignments as reassignments
from storage_engine.protocol.messages import create_topics, delete_topics, elect_leaders
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

Reply = TypeVar("Reply")
Produced = OnReply[ProduceResponse]
CreatedTopic = create_topics.CreateTopicsResponse.CreatableTopicResult

CLIENT_TIMEOUT_MS = 120_000

Answers = list[Resp | TransportError]
"""Receives a request's response or TransportError; empty until then."""
PRODUCE_TRIES = 300
PRODUCE_PAUSE_MS = 100


class SimulatedCluster:
    """Brokers 1..n."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        *,
        disk: Callable[[int], Disk] = lambda _broker: REAL_DISK,
        log_dirs: int = 1,
        racks: Sequence[str] = (),
        host_names: Sequence[str] = (),
        principals: Mapping[int, Principal] | None = None,
        machines: Sequence[SimulatedMachine] = (),
        **settings: str,
    ) -> None:
        """`racks`, `host_names` and `machines` have one for each broker, or none; `principals`: the
        principals of brokers and the client; `settings`: the settings of all brokers, with
        underscores for dots."""
        self.loop = SimulatedLoop()
        self.zookeeper = SimulatedZooKeeper(self.loop)
        self.network = SimulatedNetwork(self.loop)
        self.network.principals.update(principals or {})
        self._brokers: dict[int, SimulatedBroker] = {}
        given = {key.replace("_", "."): value for key, value in settings.items()}
        for b in range(1, count + 1):
            own = {"broker.rack": racks[b - 1]} if racks else {}
            if host_names:
                own["broker.host.name"] = host_names[b - 1]
            broker = SimulatedBroker(
                b, folder / f"broker{b}", self.network, self.zookeeper, given | own
            )
            self._brokers[b] = self.network.brokers[b] = broker
            broker.disk = disk(b)
            if machines:
                broker.machine = machines[b - 1]
            if log_dirs > 1:
                broker.use_log_dirs([broker.folder / f"disk{n}" for n in range(1, log_dirs + 1)])
            broker.start()
        self.loop.run_until(lambda: all(len(b.metadata.brokers) == count for b in self.brokers))

    @property
    def brokers(self) -> list[SimulatedBroker]:
        return list(self._brokers.values())

    def __getitem__(self, broker_id: int) -> SimulatedBroker:
        return self._brokers[broker_id]

    @contextmanager
    def seen_whole(self) -> Iterator[None]:
        """Make all files readable within a `with` block, also those in log dirs that have failed
        for their brokers."""
        disks = [b.disk for b in self.brokers if isinstance(b.disk, SimulatedDisk)]
        hidden = [(disk, disk.broken) for disk in disks if disk.broken]
        for disk, _ in hidden:
            disk.broken = set()
        try:
            yield
        finally:
            for disk, broken in hidden:
                disk.broken = broken

    @property
    def controller(self) -> SimulatedBroker | None:
        """Return the broker that acts as controller and has loaded everything."""
        for broker in self.brokers:
            if broker.serving:
                acting = broker.parts.cluster.controller.acting
                if acting is not None and acting.loaded:
                    return broker
        return None

    def close(self) -> None:
        for broker in self.brokers:
            if broker.up:
                broker.kill()

    def state(self, tp: TopicPartition) -> PartitionStateZNode:
        """Return the state in ZooKeeper of an existing partition."""
        data = self.zookeeper.data(PartitionStateZNode.path(tp.topic, tp.partition))
        assert data is not None
        return PartitionStateZNode.decode(tp.topic, tp.partition, data)

    def topic_id(self, topic: str) -> UUID:
        """Return the id in ZooKeeper of an existing topic."""
        data = self.zookeeper.data(TopicZNode.path(topic))
        assert data is not None
        topic_id = TopicZNode.decode(topic, data).topic_id
        assert topic_id is not None, "brokers give each topic one"
        return topic_id

    def ask(
        self, broker: int, spec: ApiSpec[Req, Resp], version: int, message: Req
    ) -> Answers[Resp]:
        """Send a client's request; its answer will be in the list."""
        answers: Answers[Resp] = []
        self._send(broker, spec, version, message, answers.append)
        return answers

    def _send(
        self,
        broker: int,
        spec: ApiSpec[Req, Resp],
        version: int,
        message: Req,
        on_reply: OnReply[Resp],
    ) -> None:
        timeout_ms = CLIENT_TIMEOUT_MS
        self.network.send(
            CLIENT, broker, spec, version, message, timeout_ms=timeout_ms, on_reply=on_reply
        )

    def answer(self, answers: list[Reply], *, limit_ms: int = 60_000) -> Reply:
        self.loop.run_until(lambda: bool(answers), limit_ms=limit_ms)
        return answers[0]

    def ask_controller(self, spec: ApiSpec[Req, Resp], version: int, request: Req) -> Answers[Resp]:
        self.loop.run_until(lambda: self.controller is not None)
        assert self.controller is not None
        return self.ask(self.controller.id, spec, version, request)

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> CreatedTopic:
        """Create a topic and return the controller's result for it; `config` has underscores for
        dots."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        request = create_topic_request(topic, partitions, settings)
        answer = self.answer(self.ask_controller(create_topics.API, 5, request))
        assert isinstance(answer, create_topics.CreateTopicsResponse), answer
        return answer.topics[0]

    def delete_topic(
        self, topic: str, *, timeout_ms: int = ANSWER_MS
    ) -> Answers[delete_topics.DeleteTopicsResponse]:
        request = delete_topics.DeleteTopicsRequest(topic_names=[topic], timeout_ms=timeout_ms)
        return self.ask_controller(delete_topics.API, 4, request)

    def elect_preferred(self, tp: TopicPartition) -> Answers[elect_leaders.ElectLeadersResponse]:
        """Have the first assigned replica lead, now."""
        named = elect_leaders.ElectLeadersRequest.TopicPartitions(
            topic=tp.topic, partitions=[tp.partition]
        )
        request = elect_leaders.ElectLeadersRequest(
            election_type=0, topic_partitions=[named], timeout_ms=ANSWER_MS
        )
        return self.ask_controller(elect_leaders.API, 2, request)

    def reassign(
        self, tp: TopicPartition, target: Sequence[int] | None
    ) -> Answers[reassignments.AlterPartitionReassignmentsResponse]:
        """Move the partition to other replicas; None cancels the move."""
        of_topic = reassignments.AlterPartitionReassignmentsRequest.ReassignableTopic
        replicas = None if target is None else list(target)
        named = of_topic.ReassignablePartition(partition_index=tp.partition, replicas=replicas)
        request = reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=ANSWER_MS, topics=[of_topic(name=tp.topic, partitions=[named])]
        )
        return self.ask_controller(reassignments.API, 0, request)

    def produce(
        self, broker: int, tp: TopicPartition, payload: bytes, *, acks: int = -1
    ) -> Answers[ProduceResponse]:
        answers: Answers[ProduceResponse] = []
        self.send_produce(broker, tp, payload, answers.append, acks=acks)
        return answers

    def send_produce(
        self, broker: int, tp: TopicPartition, payload: bytes, on_reply: Produced, *, acks: int = -1
    ) -> None:
        request = produce_request(tp.topic, tp.partition, make_batch(payload=payload), acks=acks)
        self._send(broker, PRODUCE, 8, request, on_reply)

    def produced(self, tp: TopicPartition, payload: bytes) -> int:
        """Produce with acks=all and retries; return the offset acknowledged."""
        for _ in range(PRODUCE_TRIES):
            leader = self.state(tp).leader
            if leader != -1 and self[leader].up:
                answer = self.answer(self.produce(leader, tp, payload))
                if not isinstance(answer, TransportError) and not answer.partitions[0].error_code:
                    return answer.partitions[0].base_offset
            self.loop.run_for(PRODUCE_PAUSE_MS)
        raise AssertionError("never acknowledged")

    def produced_when_there(self, tp: TopicPartition, payload: bytes) -> int:
        """Do as `produced`, for a topic whose partitions have no leaders yet."""
        path = PartitionStateZNode.path(tp.topic, tp.partition)
        self.loop.run_until(lambda: path in self.zookeeper.nodes)
        return self.produced(tp, payload)

    def fetch(
        self, broker: int, tp: TopicPartition, offset: int, *, wait_ms: int = 0, rack: str = ""
    ) -> Answers[FetchResponse]:
        request = fetch_request(tp.topic, tp.partition, offset, wait_ms=wait_ms, rack=rack)
        return self.ask(broker, FETCH, 11, request)

    def wait_in_sync(self, tp: TopicPartition, *members: int, limit_ms: int = 60_000) -> None:
        self.loop.run_until(lambda: set(self.state(tp).isr) == set(members), limit_ms=limit_ms)
