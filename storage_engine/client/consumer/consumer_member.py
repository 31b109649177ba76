"""A member that speaks the consumer protocol: the requests of its `ConsumerMembership`, and the
names of the topics that the coordinator assigns by their ids.

A pattern is sent as text, and found by the brokers. Source: KIP-848.
"""

import contextlib
from collections.abc import Iterable
from uuid import UUID, uuid4

from storage_engine.client.cluster import Cluster
from storage_engine.client.consumer import consumer_membership, member_requests
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_errors import group_refused
from storage_engine.client.consumer.consumer_membership import (
    BeatAnswered,
    ConsumerMembership,
    ConsumerStage,
    SendBeat,
    SendFarewell,
    TopicsKnown,
)
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
from storage_engine.client.consumer.subscription import REFRESH_MS, Subscription
from storage_engine.client.groups.group_requests import MemberIdentity
from storage_engine.client.retry import pause_ms
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

_BEAT_INTERVALS = 3
"""A heartbeat without an answer for so many intervals has failed: a coordinator that hangs is
noticed while the session lasts, which has nine by default."""


class ConsumerMember:
    """See `membership.MemberDriver`."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        self._member_id = str(uuid4())
        self._subscription = Subscription()
        self._membership = ConsumerMembership(
            max_poll_interval_ms=config.max_poll_interval_ms,
            is_static=config.group_instance_id is not None,
        )
        self._interval_ms = 0
        # Of the topics that the membership knows.
        self._names: dict[UUID, str] = {}
        self._look_at_ms = 0
        self._looks = 0
        # A coordinator that may have heard of a pattern must hear that there is none any more.
        self._had_pattern = False

    @property
    def identity(self) -> MemberIdentity:
        known = self._membership
        return MemberIdentity(member_id=self._member_id, generation=known.epoch, joins=known.joins)

    @property
    def has_timed_out(self) -> bool:
        return self._membership.stage is ConsumerStage.POLL_TIMED_OUT

    def due_ms(self) -> int | None:
        due_ms = self._membership.due_ms()
        if not self._membership.unknown_topics:
            return due_ms
        return self._look_at_ms if due_ms is None else min(due_ms, self._look_at_ms)

    def step(self, event: MemberEvent) -> list[Step]:
        if isinstance(event, Subscribed):
            self._subscription = event.subscription
        return self._steps(event)

    def look(self, now_ms: int) -> list[Step]:
        """A broker may hear of a new topic later than the coordinator: it is asked again."""
        unknown = self._membership.unknown_topics
        if not unknown or now_ms < self._look_at_ms:
            return []
        names = None if self._subscription.pattern is not None else self._subscription.topics
        with contextlib.suppress(KafkaError, DeadlineExceededError):
            self._cluster.refresh(names, Deadline.after(REFRESH_MS))
        topics = self._cluster.view.topics.values()
        found = {each.topic_id: each.topic for each in topics if each.topic_id in unknown}
        self._look_at_ms = monotonic_ms() + pause_ms(self._looks)
        self._looks += 1
        if not found:
            return []
        self._names |= found
        return self._steps(TopicsKnown(frozenset(found)))

    def _steps(self, event: consumer_membership.Event) -> list[Step]:
        steps = [self._step_of(effect) for effect in self._membership.step(event)]
        if not self._membership.unknown_topics:
            self._looks = self._look_at_ms = 0
        for gone in self._names.keys() - self._membership.known:
            del self._names[gone]
        return steps

    def _step_of(self, effect: consumer_membership.Effect) -> Step:
        match effect:
            case FindCoordinator():
                return effect
            case consumer_membership.ReleasePartitions():
                if effect.partitions is None:
                    return Revoked(lost=effect.lost)
                return Revoked(lost=effect.lost, partitions=self._named(effect.partitions))
            case consumer_membership.TakePartitions():
                partitions = self._named(effect.partitions)
                return Assigned(partitions=partitions, caller=self.identity, more=True)
            case SendFarewell():
                return Farewell(
                    request=member_requests.beat(self._config, self._member_id, effect.epoch)
                )
            case SendBeat():
                return self._beat(effect)
            case Fail():
                return self._refused(effect)

    def _named(self, partitions: Assignment) -> tuple[TopicPartition, ...]:
        rows: Iterable[TopicPartition] = (
            TopicPartition(self._names[topic], number)
            for topic, numbers in partitions.items()
            for number in numbers
        )
        return tuple(sorted(rows))

    def _refused(self, failure: Fail) -> GroupFailed:
        message = failure.message
        if failure.error is ErrorCode.UNSUPPORTED_VERSION:
            message = (
                "the brokers do not serve group.protocol=consumer: raise group.version to 1"
                " ('headrace features'), or set group.protocol=classic"
            )
            if self._subscription.pattern is not None:
                message += "; a pattern needs ConsumerGroupHeartbeat 1, of Kafka 4.0 or newer"
        return GroupFailed(group_refused(self._config.group_id, failure.error, message))

    # --- heartbeats ---

    def _beat(self, wanted: SendBeat) -> Outgoing:
        longest_ms = self._config.request_timeout_ms
        wait_ms = self._interval_ms * _BEAT_INTERVALS or longest_ms
        subscription = None
        if wanted.tells_subscription:
            pattern = self._subscription.pattern
            text = "" if pattern is None else member_requests.re2_text(pattern)
            self._had_pattern = self._had_pattern or text != ""
            subscription = member_requests.ToldSubscription(
                topics=sorted(self._subscription.topics),
                pattern=text if self._had_pattern else None,
            )
        request = member_requests.beat(
            self._config,
            self._member_id,
            wanted.epoch,
            subscription=subscription,
            owned=wanted.owned,
            is_full=wanted.is_full,
        )
        return Outgoing(
            make=lambda _now_ms: request,
            wait_ms=min(longest_ms, wait_ms),
            answered=self._answered,
        )

    def _answered(
        self, answer: ConsumerGroupHeartbeatResponse | None, code: ErrorCode
    ) -> list[Step]:
        now_ms = monotonic_ms()
        if answer is None or code is not ErrorCode.NONE:
            message = None if answer is None else answer.error_message
            return self._steps(BeatAnswered(now_ms=now_ms, error=code, message=message))
        self._interval_ms = answer.heartbeat_interval_ms
        return self._steps(
            BeatAnswered(
                now_ms=now_ms,
                error=code,
                epoch=answer.member_epoch,
                interval_ms=answer.heartbeat_interval_ms,
                assignment=None
                if answer.assignment is None
                else {
                    each.topic_id: frozenset(each.partitions)
                    for each in answer.assignment.topic_partitions
                },
            )
        )
