"""Tells the runner of coordinators what a group coordinator is: its topic, its records, its timer,
and the topics whose offsets it forgets because they were deleted. `consumer_work` has what only
consumer groups want.

Source: Kafka's classic group protocol; KIP-211 (expiry).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.topic_lookup import FoundTopic, TopicLookup
from storage_engine.broker.coordinators.coordinators import (
    GroupCoordinators,
    GroupKind,
    GroupRunner,
)
from storage_engine.broker.coordinators.runner import CoordinatorKind
from storage_engine.broker.coordinators.state_load import StateCodec
from storage_engine.broker.coordinators.state_machine import now
from storage_engine.broker.coordinators.state_topic import StateTopicPlan
from storage_engine.broker.groups.consumer_work import ConsumerPorts, ConsumerWork
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.transactions.marker_writes import MarkerTarget
from storage_engine.core.coordinator_log import Answer, Replicated
from storage_engine.core.groups.consumer.events import ConsumerHeartbeat
from storage_engine.core.groups.coordinator import GroupCoordinator, refusal
from storage_engine.core.groups.events import (
    CheckDeadlines,
    CheckDeletedTopics,
    ExpireOffsets,
    GroupEffect,
    TopicsDeleted,
    TransactionEnded,
    WakeAt,
)
from storage_engine.core.groups.records import GroupContent, GroupEntry
from storage_engine.core.groups.settings import (
    ConsumerSettings,
    GroupSettings,
    MigrationPolicy,
)
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC
from storage_engine.core.ports import Clock, Scheduler, Timer

log = logging.getLogger(__name__)


RETRY_MS = 5_000
"""The pause before ZooKeeper is asked again about a topic after an answer that left its existence
open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPorts:
    """The calls by which the presence of topics is checked."""

    metadata: MetadataCache
    lookup: TopicLookup


class DeletedTopics:
    """Finds topics that were deleted while a group had no coordinator. The next coordinator gets no
    notice, and the group would begin to read a new topic of that name at the old offsets. Offsets
    are forgotten only when both the controller and ZooKeeper know no such topic.

    A commit is accepted only while this broker knows the topic. So a topic that ZooKeeper does not
    have, but this broker knows when the answer comes, was created again meanwhile. A topic that was
    created again before the coordinator was back is not found: offsets do not carry the topic's id,
    and the clocks of brokers and ZooKeeper can't prove whether a commit or a creation was first.
    """

    def __init__(
        self, ports: TopicPorts, scheduler: Scheduler, on_gone: Callable[[frozenset[str]], None]
    ) -> None:
        """`on_gone` receives the topics that are gone."""
        self._metadata = ports.metadata
        self._lookup = ports.lookup
        self._scheduler = scheduler
        self._on_gone = on_gone
        self._asking: set[str] = set()
        self._closed = False

    def look_for(self, topics: frozenset[str]) -> None:
        """Look up those of the topics that this broker does not know."""
        if not self._metadata.is_initialized:
            self._metadata.on_first_update(lambda: self.look_for(topics))
            return
        for topic in sorted(topics):
            if topic not in self._metadata and topic not in self._asking and not self._closed:
                self._asking.add(topic)
                self._ask(topic)

    def close(self) -> None:
        self._closed = True

    def _ask(self, topic: str) -> None:
        if not self._closed:
            self._lookup.look_up(topic, lambda found: self._found(topic, found))

    def _found(self, topic: str, found: FoundTopic | None) -> None:
        if found is None:
            self._scheduler.call_later(RETRY_MS, lambda: self._ask(topic))
            return
        self._asking.discard(topic)
        if found.is_gone_or_going and topic not in self._metadata and not self._closed:
            log.info("offsets deleted: topic %s does not exist any more", topic)
            self._on_gone(frozenset([topic]))


PLAN = StateTopicPlan(
    topic=GROUP_OFFSETS_TOPIC,
    purpose="groups",
    partitions="offsets.topic.num.partitions",
    replication_factor="offsets.topic.replication.factor",
    segment_bytes="offsets.topic.segment.bytes",
    config={},
)


def group_coordinators(
    config: BrokerConfig,
    topics: TopicPorts,
    consumer: ConsumerPorts,
    *,
    scheduler: Scheduler,
    clock: Clock,
) -> GroupKind:
    settings = GroupSettings(
        initial_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        max_size=config.integer("group.max.size"),
        retention_ms=config.integer("offsets.retention.minutes") * 60_000,
        consumer=_consumer_settings(config),
    )

    def carrier(runner: GroupRunner) -> _GroupCarrier:
        work = ConsumerWork(runner, consumer, clock)
        return _GroupCarrier(runner, topics, work, scheduler, clock)

    return CoordinatorKind(
        name="groups",
        topic=GROUP_OFFSETS_TOPIC,
        load_codec=_load_codec,
        new_core=lambda _max_message_bytes: GroupCoordinator(settings),
        new_carrier=carrier,
        tick=lambda at: ExpireOffsets(at=at),
        # Replicated only answers the requests that wait for it.
        writes=lambda event: not isinstance(event, Replicated) and event.writes,
        without_append=lambda event: (
            event._replace(writes=False) if isinstance(event, ConsumerHeartbeat) else None
        ),
        answer_type=Answer,
        refusal=refusal,
    )


def _consumer_settings(config: BrokerConfig) -> ConsumerSettings:
    def milliseconds(name: str) -> int:
        return config.integer(f"group.consumer.{name}.ms")

    return ConsumerSettings(
        session_timeout_ms=milliseconds("session.timeout"),
        min_session_timeout_ms=milliseconds("min.session.timeout"),
        max_session_timeout_ms=milliseconds("max.session.timeout"),
        heartbeat_interval_ms=milliseconds("heartbeat.interval"),
        min_heartbeat_interval_ms=milliseconds("min.heartbeat.interval"),
        max_heartbeat_interval_ms=milliseconds("max.heartbeat.interval"),
        max_size=config.integer("group.consumer.max.size"),
        assignors=config.items("group.consumer.assignors"),
        migration_policy=MigrationPolicy(config.text("group.consumer.migration.policy")),
    )


def _load_codec() -> StateCodec[GroupEntry, GroupContent]:
    # Imported here since it needs Arrow.
    from storage_engine.protocol.state import group_batches

    return group_batches


def on_marker_written(coordinators: GroupCoordinators) -> Callable[[MarkerTarget], None]:
    """A function that passes each marker of a partition to its group coordinator."""

    def on_written(target: MarkerTarget) -> None:
        if target.partition.topic == GROUP_OFFSETS_TOPIC:
            commits = target.marker.commits
            ended = TransactionEnded(producer_id=target.producer_id, commits=commits)
            coordinators.submit(target.partition, ended)

    return on_written


class _GroupCarrier:
    """Timers and topic look-ups of one coordinator. Only the last WakeAt counts."""

    def __init__(
        self,
        runner: GroupRunner,
        topics: TopicPorts,
        consumer: ConsumerWork,
        scheduler: Scheduler,
        clock: Clock,
    ) -> None:
        self._runner = runner
        self._consumer = consumer
        self._scheduler = scheduler
        self._clock = clock
        self._timer: Timer | None = None
        self._deleted = DeletedTopics(
            topics, scheduler, lambda gone: runner.submit(TopicsDeleted(topics=gone))
        )

    def carry_out(self, effect: GroupEffect) -> None:
        match effect:
            case CheckDeletedTopics():
                self._deleted.look_for(effect.topics)
            case WakeAt():
                self._stop_timer()
                delay_ms = max(0, effect.now_ms - self._clock.monotonic_ms())
                self._timer = self._scheduler.call_later(delay_ms, self._ring)
            case _:
                self._consumer.carry_out(effect)

    def begin(self) -> None:
        self._consumer.begin()

    def lead_on(self, leader_epoch: int) -> None:
        """Do nothing: the alarms of groups do not depend on the leader epoch."""

    def close(self) -> None:
        self._stop_timer()
        self._deleted.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._runner.submit(CheckDeadlines(at=now(self._clock)))
