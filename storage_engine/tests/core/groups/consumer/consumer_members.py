"""Members of consumer groups as clients are, of either protocol, for a world in which much goes
wrong."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from storage_engine.core.coordinator_log import (
    Moment,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer.events import (
    ConsumerHeartbeat,
    TopicShape,
)
from storage_engine.core.groups.consumer_protocol import read_assignment
from storage_engine.core.groups.events import (
    CommitOffsets,
    Join,
    Joined,
    Leave,
    MemberHeartbeat,
    RequestingMember,
    Sync,
    Synced,
)
from storage_engine.tests.core.groups.group_bench import G, subscription

REBALANCE_MS = 20_000
INTERVAL_MS = 5_000
PATIENCE_MS = 7_000

Part = tuple[UUID, int]


class Violation(AssertionError):
    """A promise is broken."""


class Surroundings(Protocol):
    """The part of the world that a member sees."""

    random: random.Random
    now_ms: int
    topics: dict[str, TopicShape]

    @property
    def at(self) -> Moment: ...
    def ask(self, client: "Member", event_of: Callable[[int], Any]) -> None: ...
    def forget(self, client: "Member") -> None: ...
    def commit(self, client: "Member", caller: RequestingMember) -> None: ...
    def check_holders(self, client: "Member") -> None: ...
    def parts_of(self, partitions: Any) -> "frozenset[Part]": ...
    def shared_out(self, member_ids: list[str]) -> dict[str, bytes]: ...
    def epoch_of(self, member_id: str) -> int | None: ...
    def held_since(self, member_id: str, epoch: int) -> "frozenset[Part]": ...


@dataclass(slots=True)
class Asked:
    """A request under way."""

    client: "Member"
    life: int
    connection: int
    event: Any


class Member:
    """A member as clients of the consumer protocol are."""

    def __init__(self, world: Surroundings, name: str, instance_id: str | None) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.life = self.connection = 0
        self.alive = False
        self.paused_until_ms = 0

    def start(self) -> None:
        self.life += 1
        self.alive = True
        self.member_id = f"{self.name}-{self.life}"
        self.epoch = self.epoch_before = 0
        self.held: frozenset[Part] = frozenset()
        self.told: frozenset[Part] = frozenset()
        self.is_full = True
        self.asked_ms: int | None = None
        self.beat_ms = -INTERVAL_MS
        self.pattern = self.world.random.random() < 0.2

    def act(self) -> None:
        now_ms = self.world.now_ms
        if not self.alive or now_ms < self.paused_until_ms:
            return
        if self.asked_ms is not None:
            if now_ms - self.asked_ms < PATIENCE_MS:
                return
            # Its connection is closed with the request: no answer to it comes any more.
            self.close()
            self.is_full = True
        if self.held != self.told and self.world.random.random() < 0.7:
            self.held = self.told
            self.is_full = True
        if now_ms >= self.beat_ms + INTERVAL_MS or self.is_full:
            self.beat()
        elif self.held and self.world.random.random() < 0.3:
            self.commit()

    def close(self) -> None:
        self.asked_ms = None
        self.world.forget(self)

    def is_for_me(self, asked: Asked) -> bool:
        is_open = asked.life == self.life and asked.connection == self.connection
        return is_open and self.alive and not isinstance(asked.event, CommitOffsets)

    def beat(self) -> None:
        self.beat_ms = self.asked_ms = self.world.now_ms
        owned: dict[UUID, frozenset[int]] = {}
        for topic, number in self.held:
            owned[topic] = owned.get(topic, frozenset()) | {number}
        full: dict[str, Any] = {}
        if self.is_full or self.epoch == 0:
            names = frozenset() if self.pattern else frozenset({"t", "u"})
            full = {
                "rebalance_timeout_ms": REBALANCE_MS,
                "topics": names,
                "pattern": "p" if self.pattern else "",
                "owned": owned,
            }
        epoch = self.epoch
        self.world.ask(
            self,
            lambda request: ConsumerHeartbeat(
                request=request,
                group_id=G,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
                at=self.world.at,
                **full,
            ),
        )
        self.is_full = False

    def commit(self) -> None:
        """Commit all that it holds, sometimes as if it had not heard of its epoch yet."""
        is_late = self.epoch_before > 0 and self.world.random.random() < 0.3
        epoch = self.epoch_before if is_late else self.epoch
        caller = RequestingMember(member_id=self.member_id, generation=epoch)
        self.world.commit(self, caller)

    def leave(self, epoch: int) -> None:
        if self.instance_id is None:
            epoch = -1
        member_id, instance_id = self.member_id, self.instance_id
        self.stop()
        self.world.ask(
            self,
            lambda request: ConsumerHeartbeat(
                request=request,
                group_id=G,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                at=self.world.at,
            ),
        )

    def stop(self) -> None:
        self.alive = False
        self.held = self.told = frozenset()

    def give_up_all(self) -> None:
        self.held = self.told = frozenset()
        self.epoch = self.epoch_before = 0
        self.is_full = True

    def hear(self, asked: Asked, answer: Any) -> None:
        if not self.is_for_me(asked):
            return
        self.asked_ms = None
        match answer.error:
            case ErrorCode.NONE:
                if answer.member_epoch != self.epoch:
                    self.epoch_before, self.epoch = self.epoch, answer.member_epoch
                if answer.assignment is not None:
                    before = self.told
                    self.told = frozenset(
                        (topic, n) for topic, ns in answer.assignment.items() for n in ns
                    )
                    # New partitions are read at once, others given up in time.
                    self.held = self.held | self.told
                    self.is_full = self.is_full or self.told != before
                    self.world.check_holders(self)
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH:
                self.give_up_all()
            case ErrorCode.GROUP_ID_NOT_FOUND:
                self.give_up_all()
            case ErrorCode.FENCED_INSTANCE_ID:
                self.stop()
            case ErrorCode.UNRELEASED_INSTANCE_ID | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self.beat_ms = self.world.now_ms
            case ErrorCode.NOT_COORDINATOR:
                self.is_full = True
            case other:
                raise Violation(f"{asked.event} of {self.name} was answered {other}")

    @property
    def may_commit(self) -> frozenset[Part]:
        """The partitions that it holds, while the coordinator takes it for a member, and has not
        given them to another since."""
        if not self.alive:
            return frozenset()
        if self.world.epoch_of(self.member_id) == self.epoch:
            return self.held
        return self.held & self.world.held_since(self.member_id, self.epoch)


class ClassicMember(Member):
    """A member as eager clients of the classic protocol are."""

    def start(self) -> None:
        super().start()
        self.member_id = ""
        self.members: list[str] = []
        self.seen = self.world.topics
        self.step = "join"

    def act(self) -> None:
        now_ms = self.world.now_ms
        if not self.alive or now_ms < self.paused_until_ms:
            return
        if self.asked_ms is not None:
            if now_ms - self.asked_ms < 4 * PATIENCE_MS:
                return
            self.close()
            self.step = "join"
        if self.step == "heartbeat":
            if self.members and self.seen != self.world.topics:
                # It leads a classic group: it has to assign what has come.
                self.step = "join"
            elif now_ms < self.beat_ms + INTERVAL_MS:
                if self.held and self.world.random.random() < 0.3:
                    self.commit()
                return
            self.beat_ms = now_ms
        self.asked_ms = now_ms
        self.world.ask(self, getattr(self, f"_{self.step}"))

    def _caller(self) -> RequestingMember:
        return RequestingMember(
            member_id=self.member_id, generation=self.epoch, instance_id=self.instance_id
        )

    def _join(self, request: int) -> Join:
        self.held = frozenset()
        return Join(
            request=request,
            group_id=G,
            member_id=self.member_id,
            fresh_member_id=f"{self.name}-{self.life}-{request}",
            instance_id=self.instance_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", subscription("t", "u")),),
            at=self.world.at,
        )

    def _sync(self, request: int) -> Sync:
        self.seen = self.world.topics
        return Sync(
            request=request,
            group_id=G,
            caller=self._caller(),
            assignments=self.world.shared_out(self.members) if self.members else {},
            at=self.world.at,
        )

    def _heartbeat(self, request: int) -> MemberHeartbeat:
        return MemberHeartbeat(request=request, group_id=G, caller=self._caller(), at=self.world.at)

    def leave(self, epoch: int) -> None:
        """Leave by LeaveGroup; a static member only stops."""
        caller = self._caller()
        self.stop()
        if self.instance_id is None:
            self.world.ask(
                self,
                lambda request: Leave(
                    request=request, group_id=G, members=(caller,), at=self.world.at
                ),
            )

    def hear(self, asked: Asked, answer: Any) -> None:
        if not self.is_for_me(asked):
            return
        self.asked_ms = None
        match answer.error:
            case ErrorCode.NONE if isinstance(answer, Joined):
                self.member_id, self.epoch = answer.member_id, answer.generation
                self.members = [each.member_id for each in answer.members]
                self.step = "sync"
            case ErrorCode.NONE if isinstance(answer, Synced):
                found = read_assignment(answer.assignment)
                assert found is not None
                self.held = self.world.parts_of(found.partitions)
                self.world.check_holders(self)
                self.beat_ms = self.world.now_ms
                self.step = "heartbeat"
            case ErrorCode.NONE | ErrorCode.NOT_COORDINATOR:
                pass
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.held = frozenset()
                self.member_id, self.step = "", "join"
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.REBALANCE_IN_PROGRESS:
                self.step = "join"
            case ErrorCode.FENCED_INSTANCE_ID:
                self.stop()
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self.beat_ms = self.world.now_ms
            case other:
                raise Violation(f"{asked.event} of {self.name} was answered {other}")
