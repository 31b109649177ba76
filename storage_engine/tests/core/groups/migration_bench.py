"""A group that goes from one protocol to the other, and the records of its last step."""

import struct
from dataclasses import replace

from storage_engine.core.coordinator_log import AppendRecord
from storage_engine.core.groups.classic.group import GroupState
from storage_engine.core.groups.consumer_protocol import write_assignment
from storage_engine.core.groups.settings import ConsumerSettings, MigrationPolicy
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.core.groups.consumer.consumer_bench import ConsumerBench

AT_ONCE = {"initial_delay_ms": 0}
T0 = TopicPartition("t", 0)


def policy(value: MigrationPolicy) -> dict[str, ConsumerSettings]:
    return {"consumer": ConsumerSettings(migration_policy=value)}


def cooperative(*topics: str, owned=()) -> bytes:
    """The subscription of version 1, with the partitions of "t" that the member has."""
    data = struct.pack(">hi", 1, len(topics))
    for topic in topics:
        data += struct.pack(">h", len(topic)) + topic.encode()
    data += struct.pack(">i", -1)
    data += struct.pack(">i", 1) + struct.pack(">h", 1) + b"t"
    return data + struct.pack(f">i{len(owned)}i", len(owned), *owned)


class MigrationBench(ConsumerBench):
    """Keeps the records of the last step."""

    def _run(self, effects):
        effects = list(effects)
        self.last = [each for each in effects if isinstance(each, AppendRecord)] or getattr(
            self, "last", []
        )
        super()._run(effects)

    def classic(self, count: int = 2, user_data: bytes = b"") -> list:
        """A stable group by the classic protocol, whose members share the partitions of "t"."""
        rebalances = self.coordinator._rebalances
        rebalances._settings = replace(self.settings, initial_delay_ms=100)
        requests = [self.enter()[1] for _ in range(count)]
        self.advance(200)
        rebalances._settings = self.settings
        members = [self.joined(request) for request in requests]
        leader = members[0].leader
        parts = {}
        for number, each in enumerate(members):
            mine = [p for p in range(4) if p % count == number]
            data = write_assignment(0, {"t": mine})
            if user_data:
                data = data[:-4] + struct.pack(">i", len(user_data)) + user_data
            parts[each.member_id] = data
        for each in sorted(members, key=lambda each: each.member_id != leader):
            self.sync(each, parts if each.member_id == leader else {})
        assert self.group().state is GroupState.STABLE
        return members
