"""A member of `consumer_world` whose every step is that of the real `ConsumerMembership`.

What it adds to the world: its owner lets go of partitions, and takes new ones, when it gets to it,
and hears of the names of topics when it asks again.
"""

from collections import deque
from typing import Any

from storage_engine.client.consumer import consumer_membership, membership
from storage_engine.client.consumer.consumer_membership import (
    BeatAnswered,
    ConsumerMembership,
    ConsumerStage,
    SendBeat,
    SendFarewell,
    TopicsKnown,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.consumer.events import ConsumerHeartbeat
from storage_engine.core.groups.events import CommitOffsets, RequestingMember
from storage_engine.tests.core.groups.consumer.consumer_members import (
    PATIENCE_MS,
    REBALANCE_MS,
    Asked,
    Member,
    Part,
    Violation,
)
from storage_engine.tests.core.groups.group_bench import G

EXPECTED = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID})
"""Refusals for good that a static member may get."""


def parts(partitions: Assignment) -> frozenset[Part]:
    return frozenset((topic, number) for topic, ns in partitions.items() for number in ns)


class MembershipMember(Member):
    """One request of the member is under way at a time, as the driver has it."""

    def start(self) -> None:
        super().start()
        self.membership = ConsumerMembership(
            max_poll_interval_ms=REBALANCE_MS, is_static=self.instance_id is not None
        )
        self.changes: deque[Any] = deque()
        self.wanted: SendBeat | None = None
        self.sent_ms: int | None = None
        # The membership in which its owner has got what it holds.
        self.joins = 0
        self.tell(membership.Subscribed(now_ms=self.world.now_ms))

    def tell(self, event: consumer_membership.Event) -> None:
        for effect in self.membership.step(event):
            match effect:
                case membership.FindCoordinator():
                    pass
                case SendFarewell():
                    self.drop()
                    self.ask_once(effect.epoch)
                case membership.Fail():
                    if effect.error not in EXPECTED:
                        raise Violation(f"{self.name} fails: {effect.error}")
                    self.stop()
                case SendBeat():
                    self.drop()
                    self.wanted = effect
                case consumer_membership.TakePartitions():
                    self.changes.append((effect, self.membership.joins))
                case consumer_membership.ReleasePartitions():
                    if effect.partitions is None:
                        self.drop()
                    self.changes.append((effect, self.membership.joins))
        self.epoch = self.membership.epoch

    def drop(self) -> None:
        self.wanted = None
        if self.sent_ms is not None:
            self.sent_ms = None
            self.close()

    def act(self) -> None:
        now_ms = self.world.now_ms
        if not self.alive or now_ms < self.paused_until_ms:
            return
        if self.sent_ms is not None and now_ms - self.sent_ms >= PATIENCE_MS:
            self.sent_ms = None
            self.close()
            self.tell(BeatAnswered(now_ms=now_ms, error=ErrorCode.NETWORK_EXCEPTION))
        due_ms = self.membership.due_ms()
        if due_ms is not None and due_ms <= now_ms:
            self.tell(membership.MembershipTick(now_ms=now_ms))
        if self.changes and self.world.random.random() < 0.5:
            self.apply(*self.changes.popleft())
        self.tell(membership.Polled(now_ms=now_ms))
        unknown = self.membership.unknown_topics
        if unknown and self.world.random.random() < 0.5:
            self.tell(TopicsKnown(unknown))
        if self.wanted is not None:
            self.send(self.wanted)
        elif self.held and self.world.random.random() < 0.3:
            self.commit()

    def apply(self, change: Any, joins: int) -> None:
        """The owner gets to what it was asked."""
        if isinstance(change, consumer_membership.TakePartitions):
            self.joins = joins
            new = parts(change.partitions)
            if new & self.held:
                raise Violation(f"{self.name} gets what it has")
            self.held |= new
            self.world.check_holders(self)
            return
        gone = self.held if change.partitions is None else parts(change.partitions)
        if gone - self.held:
            raise Violation(f"{self.name} lets go of what it does not have")
        self.held -= gone
        self.tell(membership.Released())

    def send(self, wanted: SendBeat) -> None:
        self.wanted, self.sent_ms = None, self.world.now_ms
        told: dict[str, Any] = {}
        if wanted.tells_subscription:
            told["topics"] = frozenset() if self.pattern else frozenset({"t", "u"})
            told["pattern"] = "p" if self.pattern else ""
        self.ask_once(
            wanted.epoch,
            rebalance_timeout_ms=REBALANCE_MS if wanted.is_full else -1,
            owned=wanted.owned,
            **told,
        )

    def ask_once(self, epoch: int, **fields: Any) -> None:
        member_id, instance_id = self.member_id, self.instance_id
        self.world.ask(
            self,
            lambda request: ConsumerHeartbeat(
                request=request,
                group_id=G,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                at=self.world.at,
                **fields,
            ),
        )

    def commit(self) -> None:
        """With the present epoch, unless what it has is of a membership that is over."""
        if self.joins == self.membership.joins:
            caller = RequestingMember(member_id=self.member_id, generation=self.epoch)
            self.world.commit(self, caller)

    def leave(self, epoch: int) -> None:
        # Its owner lets go first.
        self.held = frozenset()
        self.tell(membership.Unsubscribed())
        self.stop()

    def stop(self) -> None:
        super().stop()
        self.held = frozenset()

    def hear(self, asked: Asked, answer: Any) -> None:
        if asked.life != self.life or not self.alive:
            return
        if isinstance(asked.event, CommitOffsets):
            if answer.error is not ErrorCode.NONE:
                generation = asked.event.caller.generation
                self.tell(membership.CommitAnswered(error=answer.error, generation=generation))
            return
        is_open = asked.connection == self.connection and self.sent_ms is not None
        if not is_open or asked.event.member_epoch < 0:
            return
        self.sent_ms = None
        is_good = answer.error is ErrorCode.NONE
        self.tell(
            BeatAnswered(
                now_ms=self.world.now_ms,
                error=answer.error,
                epoch=answer.member_epoch if is_good else 0,
                interval_ms=answer.interval_ms if is_good else 0,
                assignment=answer.assignment if is_good else None,
            )
        )

    @property
    def may_commit(self) -> frozenset[Part]:
        is_over = (
            self.joins != self.membership.joins or self.membership.stage is not ConsumerStage.MEMBER
        )
        return frozenset() if is_over else super().may_commit
