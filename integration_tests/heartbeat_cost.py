"""What heartbeats cost a broker: 200 groups of 5 members, each with a connection, every 3 s.

    python -m integration_tests.heartbeat_cost [groups]

Prints the share of a core that the broker takes, from its process's times, with the members'
heartbeats and, after they have left off, without.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from integration_tests.support.cluster_support import create_topic, running_cluster
from storage_engine.client.cluster import Cluster
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.consumer import member_requests
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.range_assignment import assign_ranges
from storage_engine.client.groups.committed_offsets import committed_offsets
from storage_engine.client.groups.group_requests import GroupRequest, MemberIdentity
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.net.limits import BufferPool
from storage_engine.protocol.consumer_protocol import encode_assignment, encode_subscription

GROUPS = 200
MEMBERS = 5
INTERVAL_S = 3.0
MEASURED_S = 15.0
ANSWER_MS = 60_000
TOPIC = "t"
PARTITIONS = 10


class Member:
    """One, with its connection."""

    def __init__(self, address: tuple[str, int], servers: str, group: str) -> None:
        self.config = ConsumerConfig.of({"bootstrap.servers": servers, "group.id": group})
        self.connection = BrokerConnection.open(
            address, "member", Deadline.after(ANSWER_MS), BufferPool()
        )
        self.caller = MemberIdentity(member_id="", generation=-1)

    def send(self, request: GroupRequest) -> None:
        self.connection.send(request.spec, request.message, Deadline.after(ANSWER_MS))

    def receive(self) -> Any:
        return self.connection.receive(Deadline.after(ANSWER_MS))

    def send_join(self) -> None:
        subscription = encode_subscription([TOPIC])
        self.send(member_requests.join(self.config, self.caller.member_id, subscription))

    def send_sync(self, joined: Any) -> None:
        assignments = {}
        if joined.leader == joined.member_id:
            everybody = {each.member_id: [TOPIC] for each in joined.members}
            shares: dict[str, list[TopicPartition]] = assign_ranges(everybody, {TOPIC: PARTITIONS})
            assignments = {name: encode_assignment(share) for name, share in shares.items()}
        self.caller = MemberIdentity(member_id=joined.member_id, generation=joined.generation_id)
        self.send(member_requests.sync(self.config, self.caller, assignments))


def joined(address: tuple[str, int], servers: str, groups: int) -> list[Member]:
    """All of them, in one generation of each group."""
    members = [
        Member(address, servers, f"g{group}") for group in range(groups) for _ in range(MEMBERS)
    ]
    for member in members:
        member.send_join()
    for member in members:
        # It is given a name, and told to come again with it.
        member.caller = MemberIdentity(member_id=member.receive().member_id, generation=-1)
    for member in members:
        member.send_join()
    answers = [member.receive() for member in members]
    for member, answer in zip(members, answers, strict=True):
        assert answer.error_code == 0, answer
        member.send_sync(answer)
    for member in members:
        assert member.receive().error_code == 0
    assert len({(m.config.group_id, m.caller.generation) for m in members}) == groups
    return members


def beat(members: list[Member], duration_s: float) -> int:
    """Heartbeats, evenly; how many were answered."""
    began_s = time.monotonic()
    count = 0
    while True:
        due_s = began_s + count * INTERVAL_S / len(members)
        if due_s > began_s + duration_s:
            break
        time.sleep(max(0.0, due_s - time.monotonic()))
        member = members[count % len(members)]
        if member.connection.in_flight:
            assert member.receive().error_code == 0
        member.send(member_requests.heartbeat(member.config, member.caller))
        count += 1
    return count


def processor_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """See above."""
    groups = int(sys.argv[1]) if len(sys.argv) > 1 else GROUPS
    settings = (("group.initial.rebalance.delay.ms", "5000"),)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_cluster(Path(folder), brokers=1, settings=settings) as cluster,
    ):
        create_topic(cluster, TOPIC, partitions=PARTITIONS, replication_factor=1)
        with Cluster(cluster.bootstrap_servers) as client:
            for group in range(groups):
                # Answers once there is a coordinator.
                committed_offsets(client, f"g{group}")
        (broker,) = cluster.state.brokers
        assert broker.pid is not None
        host, _, port = cluster.bootstrap_servers.partition(":")
        members = joined((host, int(port)), cluster.bootstrap_servers, groups)
        beat(members, INTERVAL_S)
        for what, work in (
            ("with heartbeats", lambda: beat(members, MEASURED_S)),
            ("without", lambda: time.sleep(MEASURED_S)),
        ):
            before_s, began_s = processor_s(broker.pid), time.monotonic()
            work()
            share = (processor_s(broker.pid) - before_s) / (time.monotonic() - began_s)
            print(f"{groups} groups of {MEMBERS}, {what}: {100 * share:.1f} % of a core")


if __name__ == "__main__":
    main()
