"""Members of consumer groups that we did not write, with one face; as a program, one to kill."""

import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException
from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.errors import KafkaError as KafkaPythonError

from integration_tests.groups.aiokafka_member import HEARTBEAT_MS, AioKafkaMember
from integration_tests.support.cluster_support import wait_until

Value = TypeVar("Value")


class GroupMember(Protocol):
    """As much of one as the tests need."""

    rebalances: int
    """How often it was given partitions."""

    def poll(self) -> list[tuple[int, int]]:
        """(partition, offset) of what has come; has to be called again and again."""
        ...

    def owned(self) -> set[int]: ...

    def commit(self) -> None:
        """All that was polled."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


class ConfluentMember:
    """librdkafka's."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, **settings: Any) -> None:
        self.rebalances = 0
        given = {key.replace("_", "."): value for key, value in settings.items()}
        if given.get("group.protocol") != "consumer":
            given.setdefault("heartbeat.interval.ms", HEARTBEAT_MS)
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **given,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, _consumer: Any, _partitions: Any) -> None:
        self.rebalances += 1

    def poll(self) -> list[tuple[int, int]]:
        messages = self.consumer.consume(200, 0.05)
        return [(m.partition(), m.offset()) for m in messages if m.error() is None]

    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class KafkaPythonMember:
    """kafka-python's, polled in a thread of its own, as long as its users do.

    Polled by turns for 50 ms, two of them can go on rebalancing for minutes on a busy machine: the
    client forgets a join that ends between two polls (3.0.12), joins anew, and sends the other off.
    """

    def __init__(self, bootstrap_servers: str, group: str, topic: str, **settings: Any) -> None:
        self.rebalances = 0
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap_servers.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            **settings,
        )
        self._consumer.subscribe([topic], listener=_Assignments(self))
        self._thread = ThreadPoolExecutor(1)
        self._polling: Future[tuple[list[tuple[int, int]], set[int]]] | None = None
        self._owned: set[int] = set()

    def _poll(self) -> tuple[list[tuple[int, int]], set[int]]:
        polled = self._consumer.poll(1_000)
        read = [(record.partition, record.offset) for each in polled.values() for record in each]
        return read, {tp.partition for tp in self._consumer.assignment()}

    def poll(self) -> list[tuple[int, int]]:
        if self._polling is None:
            self._polling = self._thread.submit(self._poll)
        if not wait([self._polling], timeout=0.05).done:
            return []
        read, self._owned = self._polling.result()
        self._polling = None
        return read

    def owned(self) -> set[int]:
        """As the last poll found it."""
        return self._owned

    def commit(self) -> None:
        self._thread.submit(self._consumer.commit).result()

    def close(self) -> None:
        self._thread.submit(self._consumer.close).result()
        self._thread.shutdown()


class _Assignments(ConsumerRebalanceListener):
    """Counts them."""

    def __init__(self, member: KafkaPythonMember) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.rebalances += 1


def poll_until(
    members: Sequence[GroupMember], condition: Callable[[], Value], what: str
) -> tuple[Value, list[tuple[int, int]]]:
    """Poll all of them until the condition holds: its value, and what has come."""
    seen: list[tuple[int, int]] = []

    def step() -> Value:
        for member in members:
            seen.extend(member.poll())
        return condition()

    return wait_until(step, what, timeout_s=180.0), seen


def share(members: Iterable[GroupMember], partitions: int) -> bool:
    """Whether each partition has one owner, and each member one partition at least."""
    owned = [member.owned() for member in members]
    return all(owned) and sorted(p for each in owned for p in each) == list(range(partitions))


def main() -> None:
    """Name of the class, bootstrap servers, group, topic, session timeout in ms: be a member until
    killed."""
    name, servers, group, topic, session_ms = sys.argv[1:]
    clients = {"ConfluentMember": ConfluentMember, "KafkaPythonMember": KafkaPythonMember}
    made: Any = {**clients, "AioKafkaMember": AioKafkaMember}[name]
    member: GroupMember = made(servers, group, topic, session_timeout_ms=int(session_ms))
    told: set[int] = set()
    while True:
        try:
            member.poll()
        except (KafkaException, KafkaPythonError, AioKafkaError) as failure:
            print(failure, file=sys.stderr, flush=True)
        if member.owned() != told:
            told = member.owned()
            print(",".join(map(str, sorted(told))), flush=True)


if __name__ == "__main__":
    main()
