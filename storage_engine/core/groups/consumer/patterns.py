"""The regular expressions of consumer groups and the topics that they match. A pattern is asked for
with a heartbeat of a member that has it, since the rights of its client say what it may match: at
once when it is new, again when topics or rights have changed, and every ten minutes. Source:
KIP-848."""

from storage_engine.core.groups.consumer.events import (
    PatternResolved,
    RequestingClient,
    ResolvePattern,
)
from storage_engine.core.groups.consumer.group import AskedPattern, ConsumerGroup
from storage_engine.core.groups.consumer.membership import GroupMembership
from storage_engine.core.groups.consumer.records import PatternKey, PatternRecord
from storage_engine.core.groups.events import GroupLog

PATTERNS_MAX = 100
"""Different patterns of one group. Its members run one program, or two while it is replaced."""

PATTERN_TOPICS_MAX = 10_000
"""Topics that count of those that a pattern matches, in the order of their names."""

PAUSE_MS = 10_000
"""The least time between two questions about a pattern: topics may come one by one."""
AGE_MAX_MS = 10 * 60 * 1000
LOST_MS = 60_000
"""When a question without an answer is asked again."""


class Patterns:
    def __init__(self, log: GroupLog, membership: GroupMembership) -> None:
        self._log = log
        self._membership = membership

    def ask_where_due(
        self, group: ConsumerGroup, pattern: str, client: RequestingClient, now_ms: int
    ) -> None:
        asked, version = group.asked.get(pattern), group.topics.version
        if asked is not None:
            age_ms = now_ms - asked.asked_ms
            if asked.is_open:
                is_due = age_ms >= LOST_MS
            else:
                pause_ms = AGE_MAX_MS if asked.version == version else PAUSE_MS
                is_due = age_ms >= pause_ms
            if not is_due:
                return
        group.asked[pattern] = AskedPattern(now_ms, version)
        self._log.emit(ResolvePattern(group_id=group.group_id, pattern=pattern, client=client))

    def take(self, group: ConsumerGroup, event: PatternResolved) -> None:
        """Take up which topics match; the group has another epoch where they are others."""
        asked = group.asked.get(event.pattern)
        if asked is None:
            # No member has it any more.
            return
        asked.is_open = False
        topics = event.topics
        if topics is None:
            asked.version = -1
            return
        if len(topics) > PATTERN_TOPICS_MAX:
            topics = frozenset(sorted(topics)[:PATTERN_TOPICS_MAX])
        known = group.content.patterns.get(event.pattern)
        if known is not None and known.topics == topics:
            return
        record = PatternRecord(
            topics=topics, version=group.topics.version, resolved_ms=event.at.wall_ms
        )
        key = PatternKey(group.group_id, event.pattern)
        self._membership.write(group, key, record, with_last=False)
        self._membership.raise_epoch(group)
