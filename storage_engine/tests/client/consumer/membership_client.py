"""A member of `group_world` whose every step is that of the real `ClassicMembership` of consumers.

What it adds to the world: its owner lets go of partitions, and takes new ones, when it gets to it,
and has nothing of an older generation then.
"""

from collections import deque
from typing import Any

from storage_engine.client.consumer import classic_membership, membership
from storage_engine.client.consumer.classic_membership import ClassicMembership, Stage
from storage_engine.client.consumer.range_assignment import assign_ranges
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import Join, Joined, Leave, MemberHeartbeat, Sync
from storage_engine.tests.core.groups.group_bench import G, subscription
from storage_engine.tests.core.groups.group_world import (
    HEARTBEAT_MS,
    PARTITIONS,
    PATIENCE_MS,
    REBALANCE_MS,
    SESSION_MS,
    Asked,
    Client,
    Violation,
)

NAMES = {
    classic_membership.SendJoin: "join",
    classic_membership.SendSync: "sync",
    classic_membership.SendHeartbeat: "heartbeat",
}


class MembershipClient(Client):
    """One request of the member is under way at a time, as the driver has it."""

    def start(self) -> None:
        super().start()
        self.membership = ClassicMembership(
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=REBALANCE_MS,
            is_static=self.instance_id is not None,
        )
        self.changes: deque[Any] = deque()
        self.wanted: Any = None
        self.call: int | None = None
        self.as_whom = "", -1
        self.tell(membership.Subscribed(now_ms=self.world.now_ms))

    def tell(self, event: classic_membership.Event) -> None:
        for effect in self.membership.step(event):
            match effect:
                case membership.FindCoordinator():
                    pass
                case classic_membership.SendLeave():
                    self.drop()
                    self.member_id = effect.member_id
                    self.world.ask(self, "leave", self._leave)
                case classic_membership.Take():
                    if self.owned:
                        raise Violation(f"{self.name} takes a part before it has let go")
                    known = self.membership
                    self.changes.append((effect, (known.member_id, known.generation)))
                case classic_membership.Release():
                    self.drop()
                    self.changes.append(effect)
                case membership.Fail():
                    if effect.error is not ErrorCode.FENCED_INSTANCE_ID:
                        raise Violation(f"{self.name} fails: {effect.error}")
                    self.alive = False
                case _:
                    self.drop()
                    self.wanted = effect
        self.member_id, self.generation = self.membership.member_id, self.membership.generation

    def drop(self) -> None:
        self.wanted = self.call = None

    def act(self) -> None:
        now_ms = self.world.now_ms
        if not self.alive or now_ms < self.paused_until_ms:
            return
        self.step = "heartbeat" if self.membership.stage is Stage.MEMBER else "join"
        if self.call is not None and now_ms - (self.asked_ms or 0) >= PATIENCE_MS[self.what]:
            self.call = None
            self.answer(None, ErrorCode.NETWORK_EXCEPTION)
        due_ms = self.membership.due_ms()
        if due_ms is not None and due_ms <= now_ms:
            self.tell(membership.MembershipTick(now_ms=now_ms))
        if self.changes and self.world.random.random() < 0.5:
            self.apply(self.changes.popleft())
        self.tell(membership.Polled(now_ms=now_ms))
        if self.wanted is not None:
            self.send()
        elif self.owned and self.world.random.random() < 0.1:
            self.commit()

    def apply(self, change: Any) -> None:
        if isinstance(change, classic_membership.Release):
            self.owned = frozenset()
            self.tell(membership.Released())
        else:
            take, self.as_whom = change
            self.owned = frozenset(take.assignment)

    def commit(self) -> None:
        """As whom it was given its part."""
        self.member_id, self.generation = self.as_whom
        super().commit()
        self.member_id, self.generation = self.membership.member_id, self.membership.generation

    def send(self) -> None:
        wanted, self.wanted = self.wanted, None
        self.what, self.asked_ms = NAMES[type(wanted)], self.world.now_ms
        self.sent = wanted
        self.world.ask(self, self.what, getattr(self, f"_{self.what}"))

    def _join(self, request: int) -> Join:
        self.call = request
        if self.owned:
            raise Violation(f"{self.name} joins while it owns {sorted(self.owned)}")
        return Join(
            request=request,
            group_id=G,
            member_id=self.sent.member_id,
            fresh_member_id=f"{self.name}-{request}",
            instance_id=self.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", subscription("t")),),
            at=self.world.at,
        )

    def _sync(self, request: int) -> Sync:
        self.call = request
        assert self.joined is not None
        subscriptions = {each.member_id: ["t"] for each in self.joined.members}
        parts = assign_ranges(subscriptions, {"t": PARTITIONS})
        return Sync(
            request=request,
            group_id=G,
            caller=self.caller,
            assignments={
                member: bytes(tp.partition for tp in partitions)
                for member, partitions in parts.items()
            },
            at=self.world.at,
        )

    def _heartbeat(self, request: int) -> MemberHeartbeat:
        self.call = request
        return MemberHeartbeat(request=request, group_id=G, caller=self.caller, at=self.world.at)

    def _leave(self, request: int) -> Leave:
        return Leave(request=request, group_id=G, members=(self.caller,), at=self.world.at)

    def leave(self) -> None:
        self.tell(membership.Unsubscribed())
        self.alive = False

    def hear(self, asked: Asked, answer: Any) -> None:
        if asked.life != self.life or not self.alive:
            return
        if asked.what == "commit":
            generation = asked.event.caller.generation
            self.tell(membership.CommitAnswered(error=answer.error, generation=generation))
        elif asked.event.request == self.call:
            self.call = None
            self.answer(answer, answer.error)

    def answer(self, answer: Any, error: ErrorCode) -> None:
        now_ms = self.world.now_ms
        match self.what:
            case "join" if not isinstance(answer, Joined):
                self.tell(classic_membership.JoinAnswered(error=error))
            case "join":
                self.joined = answer
                event = classic_membership.JoinAnswered(
                    error=error, member_id=answer.member_id, generation=answer.generation
                )
                self.tell(event)
            case "sync":
                part = b"" if error is not ErrorCode.NONE else answer.assignment
                self.tell(
                    classic_membership.SyncAnswered(error=error, now_ms=now_ms, assignment=part)
                )
            case _:
                self.tell(classic_membership.HeartbeatAnswered(error=error, now_ms=now_ms))
