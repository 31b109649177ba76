"""A coordinator with members of consumer groups that do what clients do: they hold the partitions
that they were told, and give up those that are taken from them."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from storage_engine.core.coordinator_log import Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.consumer.events import (
    AssignmentComputed,
    ComputeAssignment,
    ConsumerHeartbeat,
    HeartbeatAnswer,
    PatternResolved,
    RequestingClient,
    ResolvePattern,
    TopicShape,
    TopicShapesChanged,
)
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.security.principal import Principal
from storage_engine.tests.core.groups.group_bench import G, GroupBench

REBALANCE_MS = 60_000
INTERVAL_MS = 5_000
CLIENT = RequestingClient("client", "/host", Principal("alice"))


def topic_id(name: str, incarnation: int = 0) -> UUID:
    return UUID(bytes=name.encode().rjust(15, b"\0") + bytes([incarnation]))


def shapes(**topics: int) -> dict[str, TopicShape]:
    return {name: TopicShape(topic_id(name), count) for name, count in topics.items()}


def numbers(assignment: Assignment, topic: str = "t") -> list[int]:
    return sorted(assignment.get(topic_id(topic), ()))


class ConsumerBench(GroupBench):
    """`fail_over` restores the group, and compares it with what it was in the log."""

    def __init__(self, topics: Mapping[str, int] | None = None, **settings: Any) -> None:
        self.shapes = shapes(**({"t": 4} if topics is None else topics))
        self.tells_topics = True
        self.asked: list[ResolvePattern] = []
        self.to_compute: list[ComputeAssignment] = []
        super().__init__(**settings)

    def _start(self) -> None:
        self.asked, self.to_compute = [], []
        super()._start()
        if self.tells_topics:
            self.tell_topics(self.shapes)

    def tell_topics(self, topics: Mapping[str, TopicShape]) -> None:
        changed = {*self.shapes, *topics}
        self.shapes = dict(topics)
        self.step(TopicShapesChanged(topics=self.shapes, changed=frozenset(changed), at=self.at))
        self.advance(0)

    def _run(self, effects: Iterable[Any]) -> None:
        effects = list(effects)
        self.asked += [each for each in effects if isinstance(each, ResolvePattern)]
        self.to_compute += [each for each in effects if isinstance(each, ComputeAssignment)]
        super()._run(effects)

    def consumer_group(self, group_id: str = G) -> ConsumerGroup:
        group = self.coordinator.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def state(self) -> str:
        return self.consumer_group().state.value

    def beat(self, member_id: str, epoch: int, *, replicate: bool = True, **how: Any) -> Any:
        """The answer; None when there is none yet."""
        request = self.ask(
            lambda request: ConsumerHeartbeat(
                **{
                    "request": request,
                    "group_id": G,
                    "member_id": member_id,
                    "member_epoch": epoch,
                    "client": CLIENT,
                    "at": self.at,
                    **how,
                }
            ),
            replicate=replicate,
        )
        return self.answers.get(request)

    def enter_group(self, member_id: str, *topics: str, **how: Any) -> Any:
        joining = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topics": frozenset(topics or ("t",)),
            "owned": {},
        }
        return self.beat(member_id, 0, **{**joining, **how})

    def code(self, answer: HeartbeatAnswer) -> ErrorCode:
        if answer.error is not ErrorCode.NONE:
            assert answer.message and "\n" not in answer.message
        return answer.error

    def resolve(self, *topics: str) -> None:
        """Answer all questions about patterns."""
        asked, self.asked = self.asked, []
        for each in asked:
            event = PatternResolved(
                group_id=each.group_id, pattern=each.pattern, topics=frozenset(topics), at=self.at
            )
            self.step(event)
            self.replicate()

    def compute(self) -> None:
        """Answer all open computations."""
        effects, self.to_compute = self.to_compute, []
        for each in effects:
            self.step(
                AssignmentComputed(
                    group_id=each.group_id, epoch=each.epoch, targets=each.compute(), at=self.at
                )
            )
            self.advance(0)

    def members(self, *names: str, **how: Any) -> list["Client"]:
        """Clients that have all that is their due."""
        clients = [Client(self, name, **how) for name in names]
        self.settle(clients)
        return clients

    def settle(self, clients: Iterable["Client"]) -> None:
        clients = list(clients)
        for _ in range(10):
            for client in clients:
                client.turn()
            self.compute()
        assert self.state() == "Stable", self.state()


class Client:
    """A member as clients are: it sends a full heartbeat when it has something to tell."""

    def __init__(self, bench: ConsumerBench, name: str, *topics: str, **how: Any) -> None:
        self.bench = bench
        self.name = name
        self.topics = topics
        self.how = how
        self.epoch = 0
        self.owned: Assignment = {}
        self.says = True

    def turn(self) -> HeartbeatAnswer:
        if self.epoch == 0:
            answer = self.bench.enter_group(self.name, *self.topics, **self.how)
        elif self.says:
            answer = self.bench.beat(self.name, self.epoch, owned=self.owned)
        else:
            answer = self.bench.beat(self.name, self.epoch)
        assert answer.error is ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        self.says = answer.assignment is not None and answer.assignment != self.owned
        if answer.assignment is not None:
            self.owned = answer.assignment
        return answer

    def leave(self) -> ErrorCode:
        return self.bench.beat(self.name, -1).error

    @property
    def at(self) -> Moment:
        return self.bench.at
