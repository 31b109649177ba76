"""aiokafka's consumer with the face of the other clients' members."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

Value = TypeVar("Value")

HEARTBEAT_MS = 300
"""A member hears that the others divide the partitions anew with its next heartbeat: by default
within three seconds."""


class AioKafkaMember:
    """See `group_members.GroupMember`. In an event loop of its own, which goes on between two
    polls."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, **settings: Any) -> None:
        self.rebalances = 0
        """How often it was given partitions."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._consumer: AIOKafkaConsumer = self._run(
            self._begun(
                [topic],
                {
                    "bootstrap_servers": bootstrap_servers,
                    "group_id": group,
                    "auto_offset_reset": "earliest",
                    "enable_auto_commit": False,
                    "heartbeat_interval_ms": HEARTBEAT_MS,
                    **settings,
                },
            )
        )

    async def _begun(self, topics: list[str], settings: dict[str, Any]) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**settings)
        await consumer.start()
        # Behind `start`, which would wait for partitions.
        consumer.subscribe(topics, listener=_Counting(self))
        return consumer

    def _run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120.0)

    def poll(self) -> list[tuple[int, int]]:
        polled = self._run(self._consumer.getmany(timeout_ms=50))
        return [(record.partition, record.offset) for each in polled.values() for record in each]

    def owned(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Counting(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: AioKafkaMember) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing is to be done."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.rebalances += 1
