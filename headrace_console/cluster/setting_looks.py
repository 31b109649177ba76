"""The settings that the console's lists show: a topic's min.insync.replicas and whether it is
typed, a broker's reserved free space.

Brokers read the settings of topics from ZooKeeper, so a look asks for few topics: new ones and ones
that lack replicas first, the others in turn. Source: R-CON4.
"""

import random
import time
from collections.abc import Iterable, Sequence

from headrace_console.cluster.broker_lines import Ask, Question
from headrace_console.cluster.snapshot import TopicFacts
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.errors import HeadraceError
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING
from storage_engine.protocol.messages.describe_configs import API as DESCRIBE_CONFIGS
from storage_engine.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)

_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
MIN_ISR = "min.insync.replicas"
RESERVE = "log.dir.min.free.bytes"

MOST_TOPICS = 50
"""The most topics whose settings one look asks for."""
SHORT_KEPT_S = 20.0
"""How long to keep settings of topics that lack replicas: a lower number is seen soon."""
KEPT_S = 600.0
BROKER_KEPT_S = 60.0


class SettingLooks:
    """A cache of settings. Used by its watcher's thread only."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._topics: dict[str, tuple[float, TopicFacts]] = {}
        self._reserves: dict[int, tuple[float, int]] = {}

    @property
    def reserves(self) -> dict[int, int]:
        """The bytes that each broker keeps free; 0: no reserve, or not known."""
        return {broker: reserve for broker, (_, reserve) in self._reserves.items()}

    def look(self, metadata: ClusterMetadata, well: Sequence[int]) -> dict[str, TopicFacts]:
        """Return the facts of all topics that were asked for up to now."""
        now_s = time.monotonic()
        self._topics = {n: each for n, each in self._topics.items() if n in metadata.topics}
        topics = self._wanted(metadata, now_s)
        brokers = [
            each
            for each in well
            if each not in self._reserves or now_s - self._reserves[each][0] >= BROKER_KEPT_S
        ]
        asked: dict[int, list[tuple[int, str, list[str]]]] = {
            broker: [(_BROKER_RESOURCE, str(broker), [RESERVE])] for broker in brokers
        }
        if topics and well:
            rows = [(_TOPIC_RESOURCE, topic, [MIN_ISR, SCHEMA_SETTING]) for topic in topics]
            asked.setdefault(random.choice(well), []).extend(rows)
        if asked:
            answers = self._ask({broker: [_question(rows)] for broker, rows in asked.items()})
            for broker, (answer,) in answers.items():
                if not isinstance(answer, HeadraceError):
                    self._take(broker, answer.results, now_s)
        return {topic: facts for topic, (_, facts) in self._topics.items()}

    def _wanted(self, metadata: ClusterMetadata, now_s: float) -> list[str]:
        """Return topics to ask for: new ones, then due ones, those that lack replicas first."""
        ranked = []
        for name, topic in metadata.topics.items():
            known = self._topics.get(name)
            if known is None:
                ranked.append((0, 0.0, name))
                continue
            partitions = topic.partitions.values()
            is_short = any(len(each.isr) < len(each.replicas) for each in partitions)
            if now_s - known[0] >= (SHORT_KEPT_S if is_short else KEPT_S):
                ranked.append((1 if is_short else 2, known[0], name))
        return [name for *_, name in sorted(ranked)[:MOST_TOPICS]]

    def _take(
        self,
        broker: int,
        results: Iterable[DescribeConfigsResponse.DescribeConfigsResult],
        now_s: float,
    ) -> None:
        for result in results:
            values = {each.name: each.value for each in result.configs}
            if result.resource_type == _BROKER_RESOURCE:
                self._reserves[broker] = now_s, _number(values.get(RESERVE)) or 0
            elif result.error_code:
                self._topics[result.resource_name] = now_s, TopicFacts(None, None)
            else:
                facts = TopicFacts(_number(values.get(MIN_ISR)), SCHEMA_SETTING in values)
                self._topics[result.resource_name] = now_s, facts


def _question(rows: Iterable[tuple[int, str, list[str]]]) -> Question:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        for kind, name, keys in rows
    ]
    return DESCRIBE_CONFIGS, DescribeConfigsRequest(
        resources=resources, include_synonyms=False, include_documentation=False
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
