"""A process with several members of one group, each in a thread, of clients of several makes: they
read, commit, and tell what they own; to be killed.

Each line on standard output is a JSON object, see `ownership.Event`.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import confluent_kafka
import kafka
from kafka.errors import CommitFailedError, KafkaConnectionError, KafkaError

from storage_engine.client import CommitRefusedError, Consumer, DeadlineExceededError
from storage_engine.client import TopicPartition as OurPartition

COMMIT_EVERY_S = 0.5
POLL_MS = 200

_told = threading.Lock()


class Member(Protocol):
    """One client, with what the checks need of it."""

    def poll(self) -> Iterable[tuple[int, int]]:
        """(partition, offset) of what has come."""
        ...

    def generation(self) -> int | None:
        """None where the client does not tell."""
        ...

    def commit(self, offsets: Mapping[int, int]) -> bool:
        """False when it is refused, or nobody answers."""
        ...


class Teller:
    """The voice of one member."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation: Any = lambda: None

    def tell(self, what: str, **more: Any) -> None:
        event = {"at_s": time.monotonic(), "member": self.name, "what": what, **more}
        with _told:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()

    def assigned(self, partitions: Iterable[Any]) -> None:
        owned = sorted(tp.partition for tp in partitions)
        self.tell("assigned", partitions=owned, generation=self.generation())

    def revoked(self, partitions: Iterable[Any]) -> None:
        self.tell("revoked", partitions=sorted(tp.partition for tp in partitions))


class Ours:
    def __init__(self, config: Mapping[str, Any], topic: str, teller: Teller) -> None:
        self._consumer = Consumer(config)
        self._topic = topic
        teller.generation = self.generation
        self._consumer.subscribe([topic], on_assigned=teller.assigned, on_revoked=teller.revoked)

    def poll(self) -> Iterable[tuple[int, int]]:
        return [(record.partition, record.offset) for record in self._consumer.poll(POLL_MS)]

    def generation(self) -> int | None:
        return self._consumer.group_metadata().generation

    def commit(self, offsets: Mapping[int, int]) -> bool:
        try:
            self._consumer.commit({OurPartition(self._topic, p): o for p, o in offsets.items()})
        except (CommitRefusedError, DeadlineExceededError):
            return False
        return True


class KafkaPython:
    def __init__(self, config: Mapping[str, Any], topic: str, teller: Teller) -> None:
        self._consumer = kafka.KafkaConsumer(
            **{key.replace(".", "_"): value for key, value in config.items()}
        )
        self._topic = topic
        teller.generation = self.generation

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                teller.assigned(assigned)

            def on_partitions_revoked(self, revoked: Any) -> None:
                teller.revoked(revoked)

        self._consumer.subscribe([topic], listener=Listener())

    def poll(self) -> Iterable[tuple[int, int]]:
        try:
            polled = self._consumer.poll(POLL_MS)
        except KafkaConnectionError:
            # The one who knows the coordinator was killed; the client (3.0) leaves asking another
            # to its user.
            return []
        return [(record.partition, record.offset) for each in polled.values() for record in each]

    def generation(self) -> int | None:
        return int(self._consumer._coordinator._generation.generation_id)

    def commit(self, offsets: Mapping[int, int]) -> bool:
        wanted = {
            kafka.TopicPartition(self._topic, p): kafka.OffsetAndMetadata(o, "", -1)
            for p, o in offsets.items()
        }
        try:
            self._consumer.commit(wanted)
        except (CommitFailedError, KafkaError):
            return False
        return True


class Confluent:
    def __init__(self, config: Mapping[str, Any], topic: str, teller: Teller) -> None:
        self._consumer = confluent_kafka.Consumer({**config, "log_level": 0})
        self._topic = topic
        self._consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: teller.assigned(partitions),
            on_revoke=lambda _, partitions: teller.revoked(partitions),
        )

    def poll(self) -> Iterable[tuple[int, int]]:
        messages = self._consumer.consume(100, POLL_MS / 1000)
        return [(m.partition(), m.offset()) for m in messages if m.error() is None]  # type: ignore[misc]

    def generation(self) -> int | None:
        return None

    def commit(self, offsets: Mapping[int, int]) -> bool:
        wanted = [confluent_kafka.TopicPartition(self._topic, p, o) for p, o in offsets.items()]
        try:
            answers = self._consumer.commit(offsets=wanted, asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        return all(answer.error is None for answer in answers)


MAKES: dict[str, Callable[[Mapping[str, Any], str, Teller], Member]] = {
    "ours": Ours,
    "kafka-python": KafkaPython,
    "confluent": Confluent,
}


def be_or_end(make: str, name: str, config: Mapping[str, Any], topic: str) -> None:
    """One member that takes the whole process with it when it fails, for the test to see."""
    try:
        be(make, name, config, topic)
    finally:
        traceback.print_exc()
        os._exit(1)


def be(make: str, name: str, config: Mapping[str, Any], topic: str) -> None:
    """One member, for ever."""
    teller = Teller(name)
    member = MAKES[make](config, topic, teller)
    next_offsets: dict[int, int] = {}
    commit_at_s = 0.0
    while True:
        generation = member.generation()
        for partition, offset in member.poll():
            next_offsets[partition] = offset + 1
        if member.generation() != generation:
            # What is left of an older generation is another's affair.
            next_offsets.clear()
        if next_offsets and time.monotonic() > commit_at_s:
            offsets, next_offsets = next_offsets, {}
            begun_s = time.monotonic()
            done = member.commit(offsets)
            commit_at_s = time.monotonic() + COMMIT_EVERY_S
            teller.tell(
                "committed" if done else "refused",
                begun_s=begun_s,
                generation=generation,
                offsets=sorted(offsets.items()),
            )


def main() -> None:
    """bootstrap servers, group, topic, session timeout in ms, name of the process, and makes."""
    servers, group, topic, session_ms, name, *makes = sys.argv[1:]
    config = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": int(session_ms),
        "heartbeat.interval.ms": 500,
        "max.poll.interval.ms": 120_000,
    }
    threads = [
        threading.Thread(target=be_or_end, args=(make, f"{name}/{number}", config, topic))
        for number, make in enumerate(makes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
