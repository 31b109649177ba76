"""Serves the coordinators of consumer groups: tells them topics and settings, resolves patterns,
and computes target assignments beside the event loop, one at a time, since they need the
interpreter as the loop does. Source: KIP-848.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from storage_engine.broker import unexpected
from storage_engine.broker.coordinators.coordinators import GroupCoordinators, GroupRunner
from storage_engine.broker.coordinators.state_machine import now
from storage_engine.broker.coordinators.state_topic import StateTopic
from storage_engine.broker.groups.patterns import DescribableTopics, TopicPatterns
from storage_engine.broker.groups.topic_shapes import Shapes, TopicShapes
from storage_engine.broker.settings.group_config import GroupConfigs
from storage_engine.broker.shared_threads import SharedThreads
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.consumer.events import (
    AssignmentComputed,
    ComputeAssignment,
    ConsumerEffect,
    GroupSettingsChanged,
    PatternResolved,
    PatternsStale,
    ResolvePattern,
    TopicShapesChanged,
)
from storage_engine.core.ports import Background, Clock, Scheduler

RULES_MS = 10_000
"""How often access rules are looked at, after whose change a pattern may match other topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPorts:
    """The parts that all coordinators of a broker share."""

    topic: StateTopic
    shapes: TopicShapes
    patterns: TopicPatterns
    describable: DescribableTopics
    computations: SharedThreads
    configs: GroupConfigs


def one_at_a_time(background: Background) -> SharedThreads:
    """Return the thread of all computations; groups take turns at it."""
    return SharedThreads(background, at_once=1)


class ConsumerWork:
    """The work for one coordinator. An answer to one that has ended is dropped by its runner."""

    def __init__(self, runner: GroupRunner, ports: ConsumerPorts, clock: Clock) -> None:
        self._runner = runner
        self._ports = ports
        self._clock = clock

    def begin(self) -> None:
        """Tell a coordinator that has been restored what others have heard before."""
        shapes = self._ports.shapes.known
        if shapes is not None:
            at = now(self._clock)
            names = self._ports.shapes.names()
            self._runner.submit(TopicShapesChanged(topics=shapes, changed=names, at=at))
        for group_id in self._ports.configs.names():
            tp = self._ports.topic.partition_of(group_id)
            if tp is None or tp == self._runner.topic_partition:
                self._runner.submit(_settings_of(self._ports.configs, group_id))

    def carry_out(self, effect: ConsumerEffect) -> None:
        match effect:
            case ResolvePattern():
                self._ports.patterns.resolve(effect, partial(self._resolved, effect))
            case ComputeAssignment():
                self._ports.computations.submit(
                    ("groups", effect.group_id),
                    effect.compute,
                    lambda targets: self._computed(effect, targets),
                    partial(self._failed, effect),
                    size=effect.members,
                )
            case _:
                assert_never(effect)

    def _resolved(self, wanted: ResolvePattern, topics: frozenset[str] | None) -> None:
        self._runner.submit(
            PatternResolved(
                group_id=wanted.group_id,
                pattern=wanted.pattern,
                topics=topics,
                at=now(self._clock),
            )
        )

    def _computed(
        self, wanted: ComputeAssignment, targets: Mapping[str, Assignment] | None
    ) -> None:
        self._runner.submit(
            AssignmentComputed(
                group_id=wanted.group_id,
                epoch=wanted.epoch,
                targets=targets,
                at=now(self._clock),
            )
        )

    def _failed(self, wanted: ComputeAssignment, error: Exception) -> None:
        unexpected.report(f"target assignment of group {wanted.group_id!r} not computed", error)
        self._computed(wanted, None)


def tell_coordinators(
    coordinators: GroupCoordinators, ports: ConsumerPorts, scheduler: Scheduler, clock: Clock
) -> None:
    """Have the coordinators of a broker hear of topics, settings and access rules that change."""
    revision = ports.describable.revision

    def on_topics(shapes: Shapes, changed: frozenset[str]) -> None:
        event = TopicShapesChanged(topics=shapes, changed=changed, at=now(clock))
        coordinators.submit_to_all(event)

    def on_settings(group_id: str) -> None:
        event = _settings_of(ports.configs, group_id)
        tp = ports.topic.partition_of(group_id)
        if tp is None:
            coordinators.submit_to_all(event)
        else:
            coordinators.submit(tp, event)

    def look_at_rules() -> None:
        nonlocal revision
        if revision != ports.describable.revision:
            revision = ports.describable.revision
            coordinators.submit_to_all(PatternsStale())
        scheduler.call_later(RULES_MS, look_at_rules)

    if ports.describable.are_there_rules:
        scheduler.call_later(RULES_MS, look_at_rules)
    ports.shapes.on_changed = on_topics
    ports.configs.on_changed = on_settings


def _settings_of(configs: GroupConfigs, group_id: str) -> GroupSettingsChanged:
    times = configs.of(group_id)
    return GroupSettingsChanged(
        group_id=group_id,
        session_timeout_ms=times.session_timeout_ms,
        heartbeat_interval_ms=times.heartbeat_interval_ms,
    )
