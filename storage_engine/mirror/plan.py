"""Decides which topics a mirror copies, and which topics the target needs for that. This module
does no IO.

A partition is copied to the partition of the same number; the target's topic may have more of them,
and gets more where it has fewer. No two topics are copied into one: their offsets and keys would
mix. Source: R-CLI6.
"""

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storage_engine.client.admin.topics import ConfigEntry
from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import INTERNAL_TOPICS, topic_name_problem
from storage_engine.core.settings.config_source import ConfigSource

PROGRESS_PREFIX = "__mirror_"

SAME_NAME = "{topic}"

NOT_COPIED = frozenset(
    {
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "message.timestamp.type",
        "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "headrace.table.format",
        "headrace.table.location",
        "headrace.table.partition.by",
        "headrace.table.commit.interval.ms",
        "headrace.table.file.bytes",
    }
)
"""Settings about the brokers of the source, about whose times records have, and about the table of
the source's own lake."""

IN_FORCE = ("cleanup.policy", "max.message.bytes")
"""Copied as they are in force, also where the brokers' settings say them: what the source holds
must find room, and be kept as long."""

KEEPS_TIMES = {"message.timestamp.type": "CreateTime"}

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
"""The topic of the progress: read as a whole at each start."""

_FIELDS = {"source", "topic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Selects topics by regular expressions that must match the whole name."""

    include: re.Pattern[str]
    exclude: re.Pattern[str] | None = None
    target_name: str = SAME_NAME
    """Contains {topic}, and {source} where sources have topics of the same name."""

    def __post_init__(self) -> None:
        try:
            parts = string.Formatter().parse(self.target_name)
            fields = {name for _, name, _, _ in parts if name is not None}
        except ValueError:
            fields = set()
        if "topic" not in fields or fields - _FIELDS:
            raise ConfigError(
                f"the name of topics in the target, '{self.target_name}', must have {{topic}} in "
                "it, and may have {source}, such as '{source}.{topic}'"
            )

    @property
    def keeps_names(self) -> bool:
        return self.target_name == SAME_NAME

    def selects(self, topic: str) -> bool:
        if topic in INTERNAL_TOPICS or topic.startswith(PROGRESS_PREFIX):
            return False
        excluded = self.exclude is not None and self.exclude.fullmatch(topic)
        return bool(self.include.fullmatch(topic)) and not excluded

    def name_in_target(self, source: str, topic: str) -> str:
        """Return the topic's name in the target; ConfigError for an illegal name."""
        name = self.target_name.format(source=source, topic=topic)
        if (problem := topic_name_problem(name)) is not None:
            raise ConfigError(f"topic '{topic}' of {source} can't be copied: {problem}")
        return name


class Plan:
    """Topics of the sources and their names in the target."""

    def __init__(self, selection: TopicSelection, topics: Mapping[str, Iterable[str]]) -> None:
        """`topics`: all topics by source. ConfigError when two would be one in the target."""
        self.names: dict[tuple[str, str], str] = {}
        """The names in the target by source and topic."""
        origins: dict[str, tuple[str, str]] = {}
        for source, names in topics.items():
            for topic in sorted(filter(selection.selects, names)):
                target = selection.name_in_target(source, topic)
                if (other := origins.get(target)) is not None:
                    raise ConfigError(
                        f"topic '{topic}' of {source} and topic '{other[1]}' of {other[0]} would "
                        f"both be copied to '{target}': name them apart, such as with "
                        "--target-topic '{source}.{topic}'"
                    )
                origins[target] = (source, topic)
                self.names[source, topic] = target


def copied_settings(settings: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """The settings that a topic's copy is created with."""
    chosen = {
        setting.name: setting.value
        for setting in settings.values()
        if setting.name not in NOT_COPIED
        and (setting.source is ConfigSource.TOPIC or setting.name in IN_FORCE)
        and setting.value is not None
    }
    return {**chosen, **KEEPS_TIMES}


def check_keeps_times(topic: str, settings: Mapping[str, ConfigEntry]) -> None:
    """ConfigError for a topic of the target that would give copies times of its own."""
    for name, value in KEEPS_TIMES.items():
        found = settings.get(name)
        if found is not None and found.value != value:
            raise ConfigError(
                f"topic '{topic}' of the target has {name}={found.value}: copies would not keep "
                f"their times; set it with headrace topics alter {topic} --config {name}={value}"
            )


def missing_partitions(
    wanted: Mapping[str, int], present: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Topics of the target to create, and to grow, each with its number of partitions."""
    create = {topic: count for topic, count in wanted.items() if topic not in present}
    grow = {topic: count for topic, count in wanted.items() if present.get(topic, count) < count}
    return create, grow
