"""Other programs write anything into ZooKeeper, from a seed, under every documented path; and how a
cluster is seen to serve its clients all the same.

A well-formed request for what a test calls sound is never made, since that would be carried out;
the names that requests use are of a small set, so that now and then something with that name is
there.
"""

import json
import random
from collections.abc import Callable
from typing import Any

from simulation.world.cluster import SimulatedCluster
from simulation.world.zookeeper import SimulatedZooKeeper
from simulation.world.zookeeper_session import SimulatedSession
from storage_engine.client.zookeeper_consumer.assignment import StreamCounts
from storage_engine.client.zookeeper_consumer.member import ZooKeeperGroupMember
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture

NAMES = ("foreign", "other", "a.b", "__consumer_offsets")
ODD_NAMES = (
    *("ä", "a b", "x" * 300, "a:b", "²", "0", "-1", "3000000000", "9" * 5000, "00"),
    *("\u202e", "\u00a0x", "a\u200bb", "\u3000"),
    # No program has the means to make a node of that name: a session refuses even to ask for it.
    "\ud800",
)
NUMBERS = (0, 1, 2, 7, -1, -2, 65536, 2**31 - 1, 2**31, 3_000_000_000, 2**63 - 1, 2**63, -(2**70))
TEXTS = ("", "x", "h", "\ud800", "a\nb", "\u2028", "a/b", "..", "9" * 5000, "x" * 40_000, "1e999")
BYTES = (
    b"",
    b"\x00",
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b"{}",
    b"7",
    b'"text"',
    b"NaN",
    b"-Infinity",
    b"[" * 50_000,
    b'{"a":' * 30_000,
    b"9" * 5_000,
    b"{" + b'"partitions":{"0":[1]},' * 3 + b'"x":1}',
    b'{"version":1,"partitions":[',
    b"x" * 900_000,
)


class ForeignZNodes:
    """One program that knows the paths and nothing else."""

    def __init__(self, seed: int, *, brokers: int = 3) -> None:
        self.random = random.Random(seed)
        self.brokers = brokers

    def write(self, server: SimulatedZooKeeper) -> str:
        """One znode, whether it is there or not; its path."""
        path, like = self.random.choice(self._kinds())()
        data = self._data(like)
        if path.startswith("/admin/") and b"sound" in data:
            data = b""
        server.make_parents(path)
        server.put(path, data)
        return path

    # --- where ---

    def _kinds(self) -> list[Callable[[], tuple[str, Any]]]:
        return [
            lambda: (f"/brokers/topics/{self._name()}", self._topic()),
            lambda: (f"/brokers/topics/{self._name()}/partitions/{self._name()}", {}),
            lambda: (f"/brokers/topics/{self._name()}/partitions/0/state", self._state()),
            lambda: (f"/brokers/ids/{self._name()}", self._broker()),
            lambda: (f"/brokers/ids/{self.random.randint(1, self.brokers)}", self._broker()),
            lambda: ("/controller", {"version": 1, "brokerid": self._number()}),
            # No level that is sound in its form is among the values: brokers would end.
            lambda: ("/feature", {"version": 2, "status": 1, "features": self._value()}),
            lambda: ("/admin/delete_topics", {"topics": [self._name(), self._value()]}),
            lambda: (f"/admin/delete_topics/{self._name()}", {}),
            lambda: ("/admin/preferred_replica_election", self._partitions()),
            lambda: ("/admin/reassign_partitions", self._partitions()),
            lambda: (f"/admin/{self._name()}", self._value()),
            lambda: (f"/config/topics/{self.random.choice((*NAMES, 'sound'))}", self._config()),
            lambda: (
                f"/config/brokers/{self.random.choice(('<default>', '1', 'x'))}",
                self._config(),
            ),
            lambda: (f"/config/changes/config_change_{self._name()}", self._change()),
            lambda: (f"/config/changes/{self._name()}", self._change()),
            lambda: (f"/isr_change_notification/isr_change_{self._name()}", self._partitions()),
            lambda: (f"/log_dir_event_notification/{self._name()}", self._event()),
            lambda: (f"/consumers/{self._name()}/ids/{self._name()}", {"t": self._number()}),
            lambda: (f"/consumers/g/ids/{self._name()}", {"sound": self._value()}),
            lambda: (f"/consumers/g/{self._name()}", self._value()),
        ]

    # --- what ---

    def _data(self, like: Any) -> bytes:
        """Bytes of any kind, or JSON of the right form with something wrong in it."""
        if self.random.random() < 0.35:
            return self.random.choice((*BYTES, self.random.randbytes(self.random.randint(0, 60))))
        if isinstance(like, dict) and self.random.random() < 0.5:
            like = dict(like)
            key = self.random.choice([*like, "unknown"])
            if self.random.random() < 0.3:
                like.pop(key, None)
            else:
                like[key] = self._value()
        return json.dumps(like).encode()

    def _name(self) -> str:
        return self.random.choice(NAMES if self.random.random() < 0.6 else ODD_NAMES)

    def _number(self) -> int:
        return self.random.choice(NUMBERS)

    def _value(self, depth: int = 0) -> Any:
        kind = self.random.randrange(8 if depth < 3 else 5)
        if kind == 0:
            return self._number()
        if kind == 1:
            return self.random.choice(TEXTS)
        if kind in (2, 3, 4):
            return self.random.choice((None, True, 1.5, float("inf"), float("nan")))
        if kind == 5:
            return {self._name(): self._value(depth + 1) for _ in range(3)}
        return [self._value(depth + 1) for _ in range(3)]

    def _replicas(self) -> list[int]:
        brokers = range(1, self.brokers + 1)
        if self.random.random() < 0.5:
            return self.random.sample(brokers, self.random.randint(1, self.brokers))
        return [self._number() for _ in range(self.random.randint(0, 4))]

    def _topic(self) -> dict[str, Any]:
        numbers = [self.random.choice(("0", "1", "2", self._name())) for _ in range(3)]
        topic: dict[str, Any] = {"version": 1, "partitions": {n: self._replicas() for n in numbers}}
        if self.random.random() < 0.3:
            topic["original_replicas"] = {n: self._replicas() for n in numbers}
            topic["target_replicas"] = {n: self._replicas() for n in numbers}
        if self.random.random() < 0.3:
            topic["topic_id"] = self.random.choice((*TEXTS, "A" * 22))
        return topic

    def _state(self) -> dict[str, Any]:
        return {
            "controller_epoch": self._number(),
            "leader": self._number(),
            "version": 1,
            "leader_epoch": self._number(),
            "isr": self._replicas(),
            "joined_epochs": {self._name(): self._number()},
        }

    def _broker(self) -> dict[str, Any]:
        return {
            "jmx_port": -1,
            "host": self.random.choice(TEXTS),
            "version": 1,
            "port": self._number(),
            "rack": self._value(),
            "endpoints": self._value(),
            "tail_lost_epoch": self._number(),
            "features": self._value(),
        }

    def _partitions(self) -> dict[str, Any]:
        def entry() -> Any:
            if self.random.random() < 0.2:
                return self._value()
            topic = self.random.choice((*NAMES, *TEXTS))
            return {"topic": topic, "partition": self._number(), "replicas": self._replicas()}

        return {"version": 1, "partitions": [entry() for _ in range(self.random.randint(0, 5))]}

    def _config(self) -> dict[str, Any]:
        wrong = self.random.choice(
            ("", "x", "-9", "9" * 5000, "1e999", "\ud800", "true,false", None)
        )
        keys = ("retention.ms", "segment.bytes", "max.message.bytes", "min.insync.replicas", "x\ny")
        return {"version": 1, "config": {self.random.choice(keys): wrong for _ in range(2)}}

    def _change(self) -> dict[str, Any]:
        entity = self.random.choice(("topics/", "brokers/", "users/", "", "topics/sound/"))
        return {"version": 2, "entity_path": entity + self.random.choice((*NAMES, *TEXTS, "sound"))}

    def _event(self) -> dict[str, Any]:
        return {"version": 1, "broker": self._number(), "event": self._number()}


TP = TopicPartition("sound", 0)
SOUND = StreamCounts({"sound": 1})


cluster = cluster_fixture(
    "sound",
    has_record=True,
    simulated_disk=True,
    min_insync_replicas="2",
    replica_lag_time_max_ms="2000",
)


def next_controller(cluster: SimulatedCluster) -> int:
    """The present one is killed, and started again."""
    cluster.loop.run_until(lambda: cluster.controller is not None)
    assert cluster.controller is not None
    old = cluster.controller
    old.kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    return old.id


def all_are_known(cluster: SimulatedCluster) -> None:
    cluster.loop.run_until(
        lambda: all(
            broker.serving and {1, 2, 3} <= broker.metadata.brokers.keys()
            for broker in cluster.brokers
        )
    )


def serves_what_is_sound(cluster: SimulatedCluster, topic: str) -> None:
    all_are_known(cluster)
    created = ErrorCode.of(cluster.create_topic(topic).error_code)
    # Of a controller that has just found out that it is none any more.
    assert created in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
    assert cluster.produced_when_there(TopicPartition(topic, 0), b"new") == 0
    before = cluster.produced(TP, b"again")
    cluster[cluster.state(TP).leader].kill(session_ends_at_once=True)
    assert cluster.produced(TP, b"under the next leader") > before
    for broker in cluster.brokers:
        if not broker.up:
            broker.start()
    cluster.wait_in_sync(TP, 1, 2, 3)
    all_are_known(cluster)
    for broker in cluster.brokers:
        cluster.loop.run_until(lambda b=broker: topic in b.metadata)  # type: ignore[misc]


class Reader:
    """The partitions and brokers that a consumer gets which meets others in ZooKeeper."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        group: str,
        streams: StreamCounts = SOUND,
    ) -> None:
        self.held: set[TopicPartition] = set()
        self.failures: list[Exception] = []
        self.addresses = ""
        process = cluster[1].network.loop
        self.member = ZooKeeperGroupMember(
            SimulatedSession(cluster.zookeeper, process, timeout_ms=6000),
            process,
            self,
            group=group,
            consumer="m",
            streams=streams,
        )
        self.member.start()

    def set_brokers(self, addresses: str) -> None:
        self.addresses = addresses

    def take(self, taken) -> None:
        self.held.update(each.tp for each in taken)

    def release(self, partitions) -> dict[TopicPartition, int]:
        self.held.difference_update(partitions)
        return {}

    def lose(self, partitions) -> None:
        self.held.difference_update(partitions)

    def fail(self, error: Exception) -> None:
        self.failures.append(error)
