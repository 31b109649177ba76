"""A whole cluster in one process and in simulated time: real brokers (wiring, handlers, codecs,
logs) over a simulated ZooKeeper and network.

Fault model: brokers are killed (their files stay, as the page cache does) and restarted; the
network between two of them can be cut, which loses what is under way.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage_engine.broker.cluster_id import agree_on_cluster_id
from storage_engine.broker.config import BrokerConfig
from storage_engine.broker.handlers.context import BrokerContext
from storage_engine.broker.topic_config import log_config_for
from storage_engine.broker.wiring import build
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.log.disk import REAL_DISK, Disk
from storage_engine.log.log_manager import LogManager
from storage_engine.protocol.apis import create_topics, delete_topics
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.tests.broker.fake_loop import FakeLoop
from storage_engine.tests.broker.fake_network import (
    BASE_PORT,
    FakeConnection,
    FakeNetwork,
    FakeTransport,
)
from storage_engine.tests.broker.fake_zookeeper import FakeSession, FakeZooKeeper
from storage_engine.tests.log.support import make_batch
from storage_engine.zookeeper.znodes import PartitionStateZNode

SESSION_TIMEOUT_MS = 6000

SETTINGS = {
    "zookeeper.connect": "simulated:2181",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "leader.imbalance.check.interval.seconds": "5",
}


class MortalLoop:
    """The loop of one broker's life: what it has scheduled dies with it."""

    def __init__(self, loop: FakeLoop) -> None:
        self._loop = loop
        self._dead = False
        self.held: list[Callable[[], None]] | None = None
        """With a list, background work begins only when `release` is called."""
        self.wall_ms = loop.wall_ms
        self.monotonic_ms = loop.monotonic_ms

    def kill(self) -> None:
        self._dead = True

    def release(self) -> None:
        """Begin the background work that was held, and hold no more."""
        held, self.held = self.held or [], None
        for begin in held:
            begin()

    def _alive(self, callback: Callable[..., None]) -> Callable[..., None]:
        return lambda *args: None if self._dead else callback(*args)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        return self._loop.call_later(delay_ms, self._alive(callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(self._alive(callback))

    def submit(self, work: Any, on_done: Any, on_error: Any) -> None:
        if self.held is not None:
            self.held.append(lambda: self.submit(work, on_done, on_error))
            return
        self._loop.submit(work, self._alive(on_done), self._alive(on_error))


class FakeBroker:
    """A real broker over simulated ports; `start`, `stop` and `kill` as often as one likes."""

    def __init__(
        self,
        broker_id: int,
        folder: Path,
        network: FakeNetwork,
        zookeeper: FakeZooKeeper,
        settings: dict[str, str],
    ) -> None:
        self.id = broker_id
        self.folder = folder
        self.disk: Disk = REAL_DISK
        self.network = network
        self.zookeeper = zookeeper
        self._given = {
            **SETTINGS,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://simulated:{BASE_PORT + broker_id}",
            **settings,
        }
        self.use_folders([folder])
        self.up = False
        self.life = 0
        self.waiting: list[tuple[FakeConnection, Callable[[str], None]]] = []
        self.refused: list[Exception] = []

    def use_folders(self, paths: list[Path]) -> None:
        """Set log.dirs."""
        self.config = BrokerConfig.from_mapping(
            {**self._given, "log.dirs": ",".join(map(str, paths))}
        )

    def start(self) -> None:
        self.life += 1
        self.loop = MortalLoop(self.network.loop)
        self.session = FakeSession(self.zookeeper, timeout_ms=SESSION_TIMEOUT_MS)
        self.transport = FakeTransport(self.network, self.id)
        self.logs = LogManager(
            list(self.config.log_dirs),
            log_config_for(self.config, {}),
            broker_id=self.id,
            clock=self.loop,
            background=self.loop,
            disk=self.disk,
            reserve_bytes=self.config.integer("log.dir.min.free.bytes"),
        )
        known: list[str] = []
        agree_on_cluster_id(self.session, on_known=known.append, on_failed=self.refused.append)
        self.network.loop.run_until(lambda: bool(known))
        self.logs.load(known[0])
        self.parts = build(
            self.config,
            cluster_id=known[0],
            logs=self.logs,
            coordination=self.session,
            transport=self.transport,
            scheduler=self.loop,
            clock=self.loop,
            background=self.loop,
            lease_valid=lambda: self.session.lease_valid,
        )
        self.up = True
        self.parts.join_cluster(self.refused.append)

    @property
    def context(self) -> BrokerContext:
        return self.parts.context

    def stop(self) -> None:
        """In order, but without a controlled shutdown."""
        self.parts.close()
        self.transport.close()
        self.session.close()
        self.loop.kill()
        self.logs.close()
        self._gone()

    def kill(self, *, session_ends_at_once: bool = False) -> None:
        """SIGKILL. A broker that is restarted at once ends its predecessor's session itself."""
        self.loop.kill()
        self.transport.close()
        if session_ends_at_once:
            self.session.close()
        else:
            self.session.die()
        self.logs.abandon()
        self._gone()

    def _gone(self) -> None:
        self.up = False
        waiting, self.waiting = self.waiting, []
        for connection, fail in waiting:
            connection.closed = True
            fail("the broker is gone")


class FakeCluster:
    """Brokers 1..n, and a client."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        *,
        disk: Callable[[int], Disk] = lambda _broker: REAL_DISK,
        folders: int = 1,
        **settings: str,
    ) -> None:
        self.loop = FakeLoop()
        self.zookeeper = FakeZooKeeper(self.loop)
        self.network = FakeNetwork(self.loop)
        given = {key.replace("_", "."): value for key, value in settings.items()}
        for b in range(1, count + 1):
            broker = FakeBroker(b, folder / f"broker{b}", self.network, self.zookeeper, given)
            self.network.brokers[b] = broker
            broker.disk = disk(b)
            if folders > 1:
                broker.use_folders([broker.folder / f"disk{n}" for n in range(1, folders + 1)])
            broker.start()
        self.loop.run_until(
            lambda: all(len(b.context.metadata.brokers) == count for b in self.brokers)
        )

    @property
    def brokers(self) -> list[FakeBroker]:
        return list(self.network.brokers.values())

    def __getitem__(self, broker_id: int) -> FakeBroker:
        return self.network.brokers[broker_id]

    @property
    def controller(self) -> FakeBroker | None:
        """Who acts as one and has loaded everything."""
        for broker in self.brokers:
            acting = broker.context.controller.acting
            if broker.up and acting is not None and acting.loaded:
                return broker
        return None

    def close(self) -> None:
        for broker in self.brokers:
            if broker.up:
                broker.kill()

    def ask(self, broker: int, spec: Any, version: int, message: Any) -> list[Any]:
        """A request of a client; its answer will be in the list."""
        answers: list[Any] = []
        self.network.send(
            0, broker, spec, version, message, timeout_ms=120_000, on_reply=answers.append
        )
        return answers

    def answer(self, answers: list[Any], *, limit_ms: int = 60_000) -> Any:
        self.loop.run_until(lambda: bool(answers), limit_ms=limit_ms)
        return answers[0]

    # --- what tests do ---

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> Any:
        """The result of one topic, from the controller."""
        request = create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreateTopicsRequest.CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=-1,
                    assignments=[],
                    configs=[
                        create_topics.CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(
                            name=key.replace("_", "."), value=value
                        )
                        for key, value in config.items()
                    ],
                )
            ],
            timeout_ms=30_000,
            validate_only=False,
        )
        return self.answer(self.ask_controller(create_topics.API, 5, request)).topics[0]

    def delete_topic(self, topic: str, *, timeout_ms: int = 30_000) -> list[Any]:
        request = delete_topics.DeleteTopicsRequest(topic_names=[topic], timeout_ms=timeout_ms)
        return self.ask_controller(delete_topics.API, 4, request)

    def ask_controller(self, spec: Any, version: int, request: Any) -> list[Any]:
        self.loop.run_until(lambda: self.controller is not None)
        assert self.controller is not None
        return self.ask(self.controller.id, spec, version, request)

    def state(self, tp: TopicPartition) -> PartitionStateZNode:
        data = self.zookeeper.data(PartitionStateZNode.path(tp.topic, tp.partition))
        assert data is not None
        return PartitionStateZNode.decode(tp.topic, tp.partition, data)

    def produce(
        self, broker: int, tp: TopicPartition, payload: bytes, *, acks: int = -1
    ) -> list[Any]:
        answers: list[Any] = []
        self.send_produce(broker, tp, payload, answers.append, acks=acks)
        return answers

    def send_produce(
        self,
        broker: int,
        tp: TopicPartition,
        payload: bytes,
        on_reply: Callable[[Any], None],
        *,
        acks: int = -1,
    ) -> None:
        partition = ProducePartition(tp.topic, tp.partition, make_batch(payload=payload))
        request = ProduceRequest(None, acks, 30_000, [partition])
        self.network.send(0, broker, PRODUCE, 8, request, timeout_ms=120_000, on_reply=on_reply)

    def produced(self, tp: TopicPartition, payload: bytes) -> int:
        """Produce with acks=all, as often as it takes; the offset acknowledged."""
        for _ in range(300):
            leader = self.state(tp).leader
            if leader != -1 and self[leader].up:
                answer = self.answer(self.produce(leader, tp, payload))
                if not isinstance(answer, TransportError) and not answer.partitions[0].error_code:
                    return int(answer.partitions[0].base_offset)
            self.loop.run_for(100)
        raise AssertionError("never acknowledged")

    def produced_when_there(self, tp: TopicPartition, payload: bytes) -> int:
        """`produced`, to a topic whose partitions are still to be given leaders."""
        path = PartitionStateZNode.path(tp.topic, tp.partition)
        self.loop.run_until(lambda: path in self.zookeeper.nodes)
        return self.produced(tp, payload)

    def fetch(self, broker: int, tp: TopicPartition, offset: int, *, wait_ms: int = 0) -> list[Any]:
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            partitions=[FetchPartition(tp.topic, tp.partition, offset, 1 << 20)],
        )
        return self.ask(broker, FETCH, 11, request)

    def wait_in_sync(self, tp: TopicPartition, *members: int, limit_ms: int = 60_000) -> None:
        self.loop.run_until(lambda: set(self.state(tp).isr) == set(members), limit_ms=limit_ms)
