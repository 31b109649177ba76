"""Consumers that meet in a simulated ZooKeeper, in simulated time, and what befalls them.

Fault model: members come, leave, are killed, stopped, cut off (and return in time or not), lose the
answers of their writes; leaders move, topics come and grow. They run on two machines, and those of
one machine see each other's processes end, unless they are told not to look. A member hands out a
message of each of its partitions every few milliseconds while its lease is valid, and commits now
and then.

Checked at every message: nobody else may hand out of the partition. At every take: all before the
offset was handed out, and the offset is not before the last that was said to be stored.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from simulation.world.clock import ProcessLoop, SimulatedLoop
from simulation.world.processes import (
    SimulatedForeignSessions,
    SimulatedMachine,
    SimulatedProcesses,
)
from simulation.world.zookeeper import SimulatedZooKeeper
from simulation.world.zookeeper_session import SimulatedSession
from storage_engine.client.zookeeper_consumer.assignment import (
    LedPartition,
    StreamCounts,
    TopicFilter,
    assign_topic,
)
from storage_engine.client.zookeeper_consumer.dead_members import DeadMembers
from storage_engine.client.zookeeper_consumer.member import TakenPartition, ZooKeeperGroupMember
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition
from storage_engine.zookeeper.consumer_znodes import ConsumerGroupPaths
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

Seen = TypeVar("Seen")

GROUP = "g"
SESSION_MS = 600
HAND_OUT_MS = 20
BROKERS = (1, 2, 3)
MOST_MEMBERS = 5


class Violation(AssertionError):
    """A promise that was broken."""


class World:
    """Everything, from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loop = SimulatedLoop()
        self.server = SimulatedZooKeeper(
            self.loop, delay_ms=lambda: self.random.choice((1, 1, 2, 5, 20))
        )
        self.paths = ConsumerGroupPaths(GROUP)
        for path in ("/brokers", BrokerIdZNode.PARENT, TopicZNode.PARENT, "/consumers"):
            self.server.put(path, b"")
        self.brokers_session = self.server.new_session()
        for broker in BROKERS:
            self.add_broker(broker)
        self.partitions: dict[str, int] = {}
        self.add_topic("t", 5)
        self.machines = [SimulatedMachine("1"), SimulatedMachine("2")]
        self.members: list[Member] = []
        self.made = 0
        self.handed_out: dict[TopicPartition, int] = {}
        """All below was handed out by somebody."""
        self.stored: dict[TopicPartition, int] = {}
        """What a commit was answered for."""
        self.takes = 0

    # --- the cluster ---

    def add_broker(self, broker: int) -> None:
        node = BrokerIdZNode(broker_id=BrokerId(broker), host="h", port=broker)
        path = BrokerIdZNode.path(broker)
        self.server.put(path, node.encode())
        self.server.nodes[path].owner = self.brokers_session

    def add_topic(self, topic: str, partitions: int) -> None:
        """Or partitions to it."""
        replicas = tuple(map(BrokerId, BROKERS))
        node = TopicZNode(topic=topic, assignment=dict.fromkeys(range(partitions), replicas))
        self.server.put(TopicZNode.path(topic), node.encode())
        for partition in range(self.partitions.get(topic, 0), partitions):
            self.server.make_parents(PartitionStateZNode.path(topic, partition))
            self.lead(topic, partition)
        self.partitions[topic] = partitions

    def lead(self, topic: str, partition: int) -> None:
        """By somebody."""
        state = PartitionStateZNode(
            leader=BrokerId(self.random.choice(BROKERS)),
            leader_epoch=LeaderEpoch(0),
            isr=(BrokerId(1),),
            controller_epoch=ControllerEpoch(1),
        )
        self.server.put(PartitionStateZNode.path(topic, partition), state.encode())

    def leaders(self, topic: str) -> list[LedPartition]:
        found = []
        for partition in range(self.partitions[topic]):
            data = self.server.data(PartitionStateZNode.path(topic, partition))
            assert data is not None
            state = PartitionStateZNode.decode(topic, partition, data)
            found.append(LedPartition(state.leader, partition))
        return found

    def session(self) -> SimulatedSession:
        """A connected session of somebody who is no member."""
        made = SimulatedSession(self.server, ProcessLoop(self.loop), timeout_ms=SESSION_MS)
        self.loop.run_until(lambda: made.session_id != 0)
        return made

    def settled(self, look: Callable[[], Seen]) -> Seen:
        """What a look says once all that it asks for is read, step by step."""
        for _ in range(5):
            look()
            self.loop.run_for(100)
        return look()

    # --- the members ---

    def join(self, machine: int | None = None, *, sees_death: bool | None = None) -> "Member":
        """On a machine of its choice, and seeing deaths or not, where that is not said."""
        self.made += 1
        if machine is None:
            machine = self.random.randrange(len(self.machines))
        if sees_death is None:
            sees_death = self.random.random() < 0.8
        if self.random.random() < 0.4:
            counts = StreamCounts({}, TopicFilter.white_list("t.*"), self.random.randint(1, 3))
        else:
            counts = StreamCounts({"t": self.random.randint(1, 3)})
        member = Member(self, f"c{self.made:03d}", counts, self.machines[machine])
        if sees_death:
            member.dead_members.start()
        self.members.append(member)
        return member

    def happen(self) -> None:
        """One thing to somebody."""
        member = self.random.choice(self.members) if self.members else None
        what = self.random.choice(
            ("join", "leave", "kill", "pause", "pause", "cut", "cut", "lose", "lead", "topic")
        )
        if what == "join" or member is None:
            if len(self.members) < MOST_MEMBERS:
                self.join()
        elif what == "leave":
            member.leave()
        elif what == "kill":
            member.kill()
        elif what == "pause":
            member.pause(self.random.choice((50, 300, 700, 1500)))
        elif what == "cut":
            member.cut_off(self.random.choice((50, 300, 700, 1500)))
        elif what == "lose":
            member.session.lose_answers += self.random.randint(1, 3)
        elif what == "lead":
            self.lead("t", self.random.randrange(self.partitions["t"]))
        elif len(self.partitions) < 3:
            self.add_topic(f"t{len(self.partitions)}", self.random.randint(1, 3))
        else:
            self.add_topic("t", self.partitions["t"] + 1)

    def expected(self) -> dict[TopicPartition, tuple[str, int]]:
        """Who reads what in the end, with which stream."""
        found: dict[TopicPartition, tuple[str, int]] = {}
        for topic in self.partitions:
            streams = {
                member.name: count
                for member in self.members
                for count in [member.counts.of(self.partitions).get(topic)]
                if count is not None
            }
            for name in streams:
                for partition, stream in assign_topic(name, streams, self.leaders(topic)).items():
                    found[TopicPartition(topic, partition)] = name, stream
        return found

    def settle(self) -> None:
        """The faults are over: everything is read, by whom the assignment says."""
        for member in self.members:
            member.session.lose_answers = 0

        def shared() -> bool:
            held = {
                tp: (member.name, stream)
                for member in self.members
                for tp, stream in member.streams.items()
            }
            return held == self.expected()

        self.loop.run_until(shared, limit_ms=10 * SESSION_MS)
        readers = {tp: member for member in self.members for tp in member.streams}
        before = {tp: member.positions[tp] for tp, member in readers.items()}
        self.loop.run_for(3 * HAND_OUT_MS)
        for tp, member in readers.items():
            if member.positions.get(tp, 0) <= before[tp]:
                raise Violation(f"{member.name} does not read {tp}")


class Member:
    """A process with one consumer."""

    def __init__(
        self, world: World, name: str, counts: StreamCounts, machine: SimulatedMachine
    ) -> None:
        self.world = world
        self.name = name
        self.counts = counts
        self.process = ProcessLoop(world.loop)
        self.session = SimulatedSession(world.server, self.process, timeout_ms=SESSION_MS)
        self.of_machine = machine.begin(world.loop.now_ms)
        self.foreign_sessions = SimulatedForeignSessions(world.server, self.process)
        self.dead_members = DeadMembers(
            world.paths,
            metadata_store=self.session,
            scheduler=self.process,
            processes=SimulatedProcesses(self.of_machine, self.process),
            foreign_sessions=self.foreign_sessions,
        )
        self.auto_commit = world.random.random() < 0.7
        self.streams: dict[TopicPartition, int] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.refused = 0
        self.member = ZooKeeperGroupMember(
            self.session,
            self.process,
            self,
            group=GROUP,
            consumer=name,
            streams=counts,
        )
        self.member.start()
        self.process.call_later(HAND_OUT_MS, self.hand_out)

    # --- what befalls it ---

    def leave(self) -> None:
        if not self.process.paused and self.session.session_id:
            self.world.members.remove(self)
            self.member.stop(self.end)

    def end(self) -> None:
        if self.streams:
            raise Violation(f"{self.name} has left with {self.streams}")
        self.session.close()
        self.process.kill()
        self.of_machine.end()

    def kill(self) -> None:
        self.world.members.remove(self)
        self.session.die()
        self.process.kill()
        self.of_machine.end()
        self.streams.clear()

    def pause(self, duration_ms: int) -> None:
        if not self.process.paused:
            self.process.pause()
            self.session.pause()
            self.world.loop.call_later(duration_ms, self.resume)

    def resume(self) -> None:
        if self.process.paused:
            self.process.resume()
            self.session.resume()

    def cut_off(self, duration_ms: int) -> None:
        if self.session.state.value == "connected" and not self.process.paused:
            self.session.cut_off(arrives=self.world.random.random() < 0.5)
            self.world.loop.call_later(duration_ms, self.reconnect)

    def reconnect(self) -> None:
        self.process.enter(self.session.reconnect)

    # --- what it does ---

    def hand_out(self) -> None:
        self.process.call_later(HAND_OUT_MS, self.hand_out)
        if not self.session.lease_valid:
            return
        for tp in self.streams:
            for other in self.world.members:
                if other is not self and tp in other.streams and other.session.lease_valid:
                    raise Violation(f"{self.name} and {other.name} both read {tp}")
            offset = self.positions[tp]
            known = self.world.handed_out.get(tp, 0)
            if offset > known:
                raise Violation(f"{tp}: {known} is left out for {offset}")
            self.world.handed_out[tp] = max(known, offset + 1)
            self.positions[tp] = offset + 1
        if self.streams and self.world.random.random() < 0.4:
            self.commit()

    def commit(self) -> None:
        offsets = dict(self.positions)

        def on_done(error: HeadraceError | None) -> None:
            if error is not None:
                self.refused += 1
                return
            for tp, offset in offsets.items():
                self.world.stored[tp] = max(self.world.stored.get(tp, 0), offset)

        self.member.commit(offsets, on_done)

    # --- the reader ---

    def set_brokers(self, addresses: str) -> None:
        assert addresses.startswith("h:1")

    def take(self, taken: Sequence[TakenPartition]) -> None:
        for tp, stream, offset in taken:
            self.world.takes += 1
            start = offset or 0
            # One that does not know yet that its session has ended hands out nothing.
            if start < self.world.stored.get(tp, 0) and self.session.lease_valid:
                raise Violation(f"{tp} from {start}, {self.world.stored[tp]} is stored")
            assert tp not in self.streams
            self.streams[tp], self.positions[tp] = stream, start

    def release(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        for tp in partitions:
            del self.streams[tp]
        left = {tp: self.positions.pop(tp) for tp in partitions}
        return left if self.auto_commit else {}

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            del self.streams[tp], self.positions[tp]

    def fail(self, error: HeadraceError) -> None:
        raise Violation(str(error))
