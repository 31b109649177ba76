"""The target assignments of consumer groups. A group whose epoch is above that of its targets gets
others; short computations are done in the step, long ones beside the event loop while the members
go on, one for each group at a time, so that members that come meanwhile share the next one. Source:
KIP-848."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from uuid import UUID

from storage_engine.core.coordinator_log import pieces
from storage_engine.core.groups.assignors.assignment import Assignment, SubscribedMember
from storage_engine.core.groups.assignors.assignors import ASSIGNORS
from storage_engine.core.groups.consumer.events import (
    AssignmentComputed,
    ComputeAssignment,
    TopicShape,
)
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.membership import GroupMembership
from storage_engine.core.groups.consumer.records import (
    ConsumerMemberRecord,
    PatternRecord,
    TargetKey,
    TargetMemberKey,
    TargetMemberRecord,
    TargetRecord,
)
from storage_engine.core.groups.deadlines import DeadlineKey, Deadlines
from storage_engine.core.groups.events import GroupLog
from storage_engine.core.groups.group import Group
from storage_engine.core.groups.settings import ConsumerSettings

SHORT_WORK = 1_000
"""The partitions, the members, and the topics for each member, up to which an assignment is
computed in the step: with 1,000 in all it takes half a millisecond."""

RETRY_MS = 5_000
"""The pause after a computation that has failed."""

Work = Callable[[Iterator[None]], None]
"""Has the rest of some work done in pieces, with the turns of others between them."""


class Targets:
    def __init__(
        self,
        log: GroupLog,
        settings: ConsumerSettings,
        groups: Mapping[str, Group],
        membership: GroupMembership,
        deadlines: Deadlines,
        work: Work,
    ) -> None:
        self._log = log
        self._settings = settings
        self._groups = groups
        self._membership = membership
        self._deadlines = deadlines
        self._work = work

    def advance(self, group: ConsumerGroup) -> None:
        """Raise the epoch of a group whose topics have changed, and have its targets computed where
        they are old."""
        if group.topics.shapes is None or not group.members:
            return
        seen = group.topics_seen()
        if seen.hash != group.metadata_hash:
            self._membership.raise_epoch(group)
        if group.epoch <= group.target_epoch or group.computing is not None:
            return
        if seen.partitions + group.size * (1 + seen.topics) <= SHORT_WORK:
            epoch = group.epoch
            self._put(group, list(group.members), self._computation(group)())
            self._end(group, epoch)
            return
        if group.target_epoch == 0:
            # A member that waits for the first targets has an epoch nevertheless: 0 says that it
            # still has to join.
            self._end(group, group.epoch)
            self._membership.raise_epoch(group)
        group.computing = group.epoch
        self._log.emit(
            ComputeAssignment(
                group_id=group.group_id,
                epoch=group.epoch,
                members=group.size,
                compute=self._computation(group),
            )
        )

    def take(self, group: ConsumerGroup, event: AssignmentComputed) -> None:
        """Take up the result of a long computation, in pieces."""
        if group.computing != event.epoch:
            return
        if event.targets is None:
            group.computing = None
            self._deadlines.plan(DeadlineKey(group.group_id), event.at.now_ms + RETRY_MS)
            return
        self._work(self._take(group, event.epoch, event.targets))

    def _take(
        self, group: ConsumerGroup, epoch: int, targets: Mapping[str, Assignment]
    ) -> Iterator[None]:
        is_whole = True
        for piece in pieces(group.members):
            if self._groups.get(group.group_id) is not group:
                return
            self._put(group, piece, targets)
            is_whole = is_whole and targets.keys() >= group.members.keys() & piece
            yield
        group.computing = None
        if self._groups.get(group.group_id) is group and group.members:
            self._end(group, epoch)
            if not is_whole and group.epoch == epoch:
                # It was computed for another group of that name.
                self._membership.raise_epoch(group)
            self.advance(group)

    def _put(
        self, group: ConsumerGroup, member_ids: list[str], targets: Mapping[str, Assignment]
    ) -> None:
        """Write those targets of these members that are others than before."""
        known = group.content.targets
        for member_id in member_ids:
            before, target = known.get(member_id), targets.get(member_id, {})
            is_same = before is not None and before.assignment == target
            if member_id in group.members and not is_same:
                key = TargetMemberKey(group.group_id, member_id)
                record = TargetMemberRecord(assignment=target)
                self._membership.write(group, key, record, with_last=False)

    def _end(self, group: ConsumerGroup, epoch: int) -> None:
        key = TargetKey(group.group_id)
        self._membership.write(group, key, TargetRecord(epoch=epoch), with_last=False)

    def _computation(self, group: ConsumerGroup) -> Callable[[], dict[str, Assignment]]:
        """Return the computation of the group's targets; it has copies of what may change."""
        content = group.content
        return partial(
            compute,
            group.preferred_assignor(self._settings.assignors),
            dict(content.members),
            dict(content.targets),
            dict(content.patterns),
            group.topics.shapes or {},
        )


def compute(
    assignor: str,
    members: Mapping[str, ConsumerMemberRecord],
    targets: Mapping[str, TargetMemberRecord],
    patterns: Mapping[str, PatternRecord],
    topics: Mapping[str, TopicShape],
) -> dict[str, Assignment]:
    """Return the targets of all members, made from those that they have."""
    ids: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
    partitions: dict[UUID, int] = {}
    subscribed: dict[str, SubscribedMember] = {}
    for member_id, member in members.items():
        subscription = member.topics, member.pattern
        wanted = ids.get(subscription)
        if wanted is None:
            resolved = None if member.pattern is None else patterns.get(member.pattern)
            names = member.topics if resolved is None else member.topics | resolved.topics
            shapes = [topics[name] for name in names if name in topics]
            partitions.update(shapes)
            wanted = ids[subscription] = frozenset(topic_id for topic_id, _ in shapes)
        target = targets.get(member_id)
        subscribed[member_id] = SubscribedMember(
            wanted, member.instance_id, {} if target is None else target.assignment
        )
    return ASSIGNORS[assignor](subscribed, partitions)
