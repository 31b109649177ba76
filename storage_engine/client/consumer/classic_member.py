"""A member that speaks the classic protocol: the requests of its `ClassicMembership`, and the
metadata by which the leader of a generation assigns partitions.

Source: Kafka's classic group protocol.
"""

import contextlib
from collections.abc import Callable

from storage_engine.client.cluster import Cluster
from storage_engine.client.consumer import classic_membership, member_requests
from storage_engine.client.consumer.classic_membership import ClassicMembership, Stage
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_errors import group_refused
from storage_engine.client.consumer.coordinator_calls import Answer
from storage_engine.client.consumer.membership import (
    Assigned,
    Fail,
    Farewell,
    FindCoordinator,
    GroupFailed,
    MemberEvent,
    Outgoing,
    Revoked,
    Step,
    Subscribed,
)
from storage_engine.client.consumer.range_assignment import assign_ranges
from storage_engine.client.consumer.subscription import Subscription, TopicCounts
from storage_engine.client.groups.group_requests import GroupRequest, MemberIdentity
from storage_engine.core.errors import (
    CorruptRecordError,
    DeadlineExceededError,
    ErrorCode,
    KafkaError,
)
from storage_engine.core.groups.consumer_protocol import subscribed_topics
from storage_engine.net.deadline import monotonic_ms
from storage_engine.protocol.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from storage_engine.protocol.messages.join_group import JoinGroupResponse
from storage_engine.protocol.messages.sync_group import SyncGroupResponse

OnAnswer = Callable[[Answer | None, ErrorCode], classic_membership.Event]


class ClassicMember:
    """See `membership.MemberDriver`."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self._config = config
        self._topics = TopicCounts(cluster, max_age_ms=config.metadata_max_age_ms)
        self._subscription = Subscription()
        self._membership = ClassicMembership(
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            is_static=config.group_instance_id is not None,
        )
        self._joined: JoinGroupResponse

    @property
    def identity(self) -> MemberIdentity:
        known = self._membership
        return MemberIdentity(
            member_id=known.member_id,
            generation=known.generation,
            # Each generation has partitions of its own.
            joins=max(0, known.generation),
        )

    @property
    def has_timed_out(self) -> bool:
        return self._membership.stage is Stage.POLL_TIMED_OUT

    def due_ms(self) -> int | None:
        return self._membership.due_ms()

    def step(self, event: MemberEvent) -> list[Step]:
        if isinstance(event, Subscribed):
            self._subscription = event.subscription
        return self._steps(event)

    def look(self, now_ms: int) -> list[Step]:
        """The leader assigns by the metadata of all members' topics: it joins anew when they
        change."""
        if self._membership.stage is Stage.MEMBER:
            # When nobody tells now, it is asked again at the next time.
            with contextlib.suppress(KafkaError, DeadlineExceededError):
                if self._topics.changed(now_ms):
                    return self._steps(classic_membership.TopicsChanged())
        return []

    def _steps(self, event: classic_membership.Event) -> list[Step]:
        return [self._step_of(effect) for effect in self._membership.step(event)]

    def _step_of(self, effect: classic_membership.Effect) -> Step:
        match effect:
            case FindCoordinator():
                return effect
            case classic_membership.Release():
                return Revoked(lost=effect.lost)
            case classic_membership.Take():
                return self._assigned(effect.assignment)
            case classic_membership.SendLeave():
                return Farewell(request=member_requests.leave(self._config, effect.member_id))
            case Fail():
                return GroupFailed(
                    group_refused(self._config.group_id, effect.error, effect.message)
                )
            case classic_membership.SendJoin():
                return self._join(effect)
            case classic_membership.SendSync():
                return self._sync(effect)
            case classic_membership.SendHeartbeat():
                return self._heartbeat(effect)

    def _assigned(self, assignment: bytes) -> Step:
        try:
            partitions = decode_assignment(assignment)
        except CorruptRecordError as error:
            return GroupFailed(error)
        return Assigned(partitions=partitions, caller=self.identity)

    # --- requests ---

    def _outgoing(
        self, make: Callable[[int], GroupRequest], on_answer: OnAnswer, wait_ms: int | None = None
    ) -> Outgoing:
        """`wait_ms`: None for a request that waits for the other members."""
        if wait_ms is None:
            wait_ms = self._config.max_poll_interval_ms + self._config.request_timeout_ms
        return Outgoing(
            make=make,
            wait_ms=wait_ms,
            answered=lambda answer, code: self._steps(on_answer(answer, code)),
        )

    def _join(self, wanted: classic_membership.SendJoin) -> Outgoing:
        def make(now_ms: int) -> GroupRequest:
            topics = self._topics.subscribe(self._subscription, now_ms)
            return member_requests.join(self._config, wanted.member_id, encode_subscription(topics))

        def on_answer(
            answer: JoinGroupResponse | None, code: ErrorCode
        ) -> classic_membership.JoinAnswered:
            if answer is None:
                return classic_membership.JoinAnswered(error=code)
            self._joined = answer
            return classic_membership.JoinAnswered(
                error=code, member_id=answer.member_id, generation=answer.generation_id
            )

        return self._outgoing(make, on_answer)

    def _sync(self, wanted: classic_membership.SendSync) -> Outgoing:
        caller = MemberIdentity(member_id=wanted.member_id, generation=wanted.generation)

        def make(now_ms: int) -> GroupRequest:
            return member_requests.sync(self._config, caller, self._assignments(now_ms))

        def on_answer(
            answer: SyncGroupResponse | None, code: ErrorCode
        ) -> classic_membership.SyncAnswered:
            part = b"" if answer is None else bytes(answer.assignment)
            return classic_membership.SyncAnswered(
                error=code, now_ms=monotonic_ms(), assignment=part
            )

        return self._outgoing(make, on_answer)

    def _assignments(self, now_ms: int) -> dict[str, bytes]:
        """The assignments of all members, when this member leads the group."""
        joined = self._joined
        if joined.leader != joined.member_id:
            return {}
        subscriptions = {
            each.member_id: subscribed_topics(each.metadata) or frozenset()
            for each in joined.members
        }
        every = frozenset(topic for topics in subscriptions.values() for topic in topics)
        counts = self._topics.watch(every, now_ms)
        return {
            member: encode_assignment(partitions)
            for member, partitions in assign_ranges(subscriptions, counts).items()
        }

    def _heartbeat(self, wanted: classic_membership.SendHeartbeat) -> Outgoing:
        caller = MemberIdentity(member_id=wanted.member_id, generation=wanted.generation)
        return self._outgoing(
            lambda _now_ms: member_requests.heartbeat(self._config, caller),
            lambda _answer, code: classic_membership.HeartbeatAnswered(
                error=code, now_ms=monotonic_ms()
            ),
            # A coordinator that hangs is noticed while the session lasts.
            min(self._config.request_timeout_ms, self._config.session_timeout_ms // 2),
        )
