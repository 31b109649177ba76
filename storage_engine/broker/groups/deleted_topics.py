"""Finds topics that were deleted while a group had no coordinator. The next coordinator is not
notified, and a group would begin to read a new topic of that name at the old offsets. Offsets are
forgotten only when both the controller and ZooKeeper know no such topic.

A commit is accepted only while this broker knows the topic. So a topic that ZooKeeper does not
have, but this broker knows when the answer comes, was created again meanwhile. A topic that was
created again before the coordinator was back is not found: offsets do not carry the topic's id, and
the clocks of brokers and ZooKeeper can't prove whether a commit or a creation was first.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.topic_lookup import FoundTopic, TopicLookup
from storage_engine.core.ports import Scheduler

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
    """The look-ups of one coordinator; `on_gone` gets the topics that are gone."""

    def __init__(
        self, ports: TopicPorts, scheduler: Scheduler, on_gone: Callable[[frozenset[str]], None]
    ) -> None:
        self._metadata = ports.metadata
        self._lookup = ports.lookup
        self._scheduler = scheduler
        self._on_gone = on_gone
        self._asking: set[str] = set()
        self._closed = False

    def look_for(self, topics: frozenset[str]) -> None:
        """Checks those of these topics that this broker does not know."""
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
            log.info("offsets forgotten: there is no topic %s any more", topic)
            self._on_gone(frozenset([topic]))
