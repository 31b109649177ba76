"""Takes groups from one protocol to the other, also while they work: a classic group becomes a
consumer group with the first member that joins by the consumer protocol, and a classic one again
when the last such member has left. Where there are no members the group is simply replaced.

A conversion is one batch: the tombstones of the one kind and all records of the other, so that a
failover finds the group wholly of one kind. The member that joins a large group is in the batch
after it: after a failover between the two it joins again. Members of the classic protocol go on in
a consumer group (`consumer.classic_members`). Source: KIP-848.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import TypeVar
from uuid import UUID

from storage_engine.core.coordinator_log import PIECE, Answer, Moment, pieces
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.busy_groups import BusyGroups
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState, Member
from storage_engine.core.groups.classic.offers import Offer
from storage_engine.core.groups.classic.rebalances import Rebalances
from storage_engine.core.groups.consumer.events import ConsumerHeartbeat
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.heartbeat_checks import Refusal, refused
from storage_engine.core.groups.consumer.membership import GroupMembership
from storage_engine.core.groups.consumer.records import (
    ClassicMemberRecord,
    ConsumerGroupKey,
    ConsumerGroupRecord,
    ConsumerMemberKey,
    ConsumerMemberRecord,
    ConsumerRecord,
    ConsumerRecordKey,
    CurrentAssignmentKey,
    CurrentAssignmentRecord,
    MemberState,
    TargetKey,
    TargetMemberKey,
    TargetMemberRecord,
    TargetRecord,
)
from storage_engine.core.groups.consumer.topics import Topics
from storage_engine.core.groups.consumer_protocol import (
    MemberSubscription,
    decode_subscription,
    read_assignment,
    write_assignment,
)
from storage_engine.core.groups.events import GroupLog
from storage_engine.core.groups.group import CONSUMER, Group
from storage_engine.core.groups.records import GroupEntry
from storage_engine.core.groups.settings import GroupSettings

ResultT = TypeVar("ResultT")


class Migration:
    def __init__(
        self,
        log: GroupLog,
        settings: GroupSettings,
        groups: dict[str, Group],
        topics: Topics,
        membership: GroupMembership,
        rebalances: Rebalances,
        busy: BusyGroups,
    ) -> None:
        self._log = log
        self._settings = settings
        self._groups = groups
        self._topics = topics
        self._membership = membership
        self._rebalances = rebalances
        self._busy = busy

    # --- to a consumer group ---

    def upgrade(
        self, group: Group | None, member_id: str, event: ConsumerHeartbeat
    ) -> ConsumerGroup | Refusal | None:
        """Return the consumer group that a member joins that speaks the consumer protocol; None:
        the event waits until there is one."""
        if not isinstance(group, ClassicGroup):
            made = ConsumerGroup(group_id=event.group_id, topics=self._topics)
            self._groups[event.group_id] = made
            return made
        if group.is_empty:
            made = self._consumer_group(group)
            self._put(group, made, [])
            return made
        reason = self._refuse_upgrade(group, member_id)
        if reason is not None:
            return _refused(group, reason)
        steps = self._upgrading(group, event.at)
        if group.size <= AT_ONCE:
            return _result(steps)
        self._busy.convert(event.group_id, self._upgrade_for(event, steps))
        return None

    def _upgrade_for(
        self,
        event: ConsumerHeartbeat,
        steps: Generator[None, None, ConsumerGroup | Refusal],
    ) -> Iterator[None]:
        found = yield from steps
        if isinstance(found, Refusal):
            self._log.emit(refused(event, found))
        else:
            self._busy.put_first(event)

    def _refuse_upgrade(self, group: ClassicGroup, joining_id: str) -> str | None:
        if not self._settings.consumer.migration_policy.upgrades:
            return "group.consumer.migration.policy does not allow it"
        if group.protocol_type != CONSUMER:
            return f"its protocol type is {group.protocol_type}, and not {CONSUMER}"
        if group.size >= self._settings.consumer.max_size:
            return "it has more members than group.consumer.max.size allows"
        if joining_id in group.members:
            return f"{joining_id} is a member that speaks the classic protocol"
        return None

    def _upgrading(
        self, group: ClassicGroup, at: Moment
    ) -> Generator[None, None, ConsumerGroup | Refusal]:
        """Make the group a consumer group, in pieces up to the one batch that has all of it."""
        assigned = 0
        taken: set[tuple[UUID, int]] = set()
        known: dict[bytes, MemberSubscription | None] = {}
        converted = []
        for piece in pieces(group.members.values(), AT_ONCE):
            for member in piece:
                metadata = member.metadata(group.protocol or next(iter(member.offer.names.names)))
                if metadata not in known:
                    known[metadata] = decode_subscription(metadata)
                found = self._converted(group, member, known[metadata], taken)
                if isinstance(found, str):
                    return _refused(group, found)
                converted.append((member.member_id, *found))
                assigned += len(member.assignment)
            yield
        described = 2 * group.sizes.members + group.offers.size
        size = described + ASSIGNED_FACTOR * assigned + MEMBER_BYTES * group.size
        if size > self._settings.record_max_bytes:
            return _refused(group, "its members are too many for one batch of the log")
        made, records = self._consumer_group(group), []
        for key, record in _in_order(group.group_id, group.generation, converted):
            made.apply(key, record)
            records.append((key, record))
            if len(records) % PIECE == 0:
                yield
        self._put(group, made, records)
        self._end_requests(group)
        for ids in pieces(made.members):
            for member_id in ids:
                self._membership.take_up(made, member_id, at)
            yield
        return made

    def _converted(
        self,
        group: ClassicGroup,
        member: Member,
        subscription: MemberSubscription | None,
        taken: set[tuple[UUID, int]],
    ) -> tuple[ConsumerMemberRecord, Assignment] | str:
        """`taken` has the partitions of the members before, and gets those of this one."""
        assignment = read_assignment(member.assignment)
        if subscription is None or assignment is None:
            return f"the data of member {member.member_id} can't be decoded"
        if assignment.user_data:
            # Consumer groups have no place for it, and its assignor would be lost without.
            return "it uses an assignor of its own, whose user data would be lost"
        owned = assignment.partitions
        if group.state is GroupState.COMPLETING:
            # It may still hold these: its part of this generation has not been assigned yet.
            owned = subscription.owned
        partitions: dict[UUID, frozenset[int]] = {}
        for topic, shape in self._topics.of(owned).items():
            free = frozenset(
                number
                for number in owned[topic]
                if 0 <= number < shape.partitions and (shape.topic_id, number) not in taken
            )
            taken.update((shape.topic_id, number) for number in free)
            if free:
                partitions[shape.topic_id] = free
        return _consumer_member(member, subscription), partitions

    def _consumer_group(self, group: ClassicGroup) -> ConsumerGroup:
        return ConsumerGroup(
            group_id=group.group_id,
            topics=self._topics,
            offsets=group.offsets,
            number=group.number,
        )

    def _put(
        self,
        group: Group,
        made: Group,
        records: Iterable[GroupEntry],
    ) -> None:
        """Put a group in the place of another, in one batch with its records."""
        self._groups[group.group_id] = made
        number = self._log.appended
        for entry in group.tombstones():
            made.number = self._log.append(entry, with_last=self._log.appended > number)
        for entry in records:
            made.number = self._log.append(entry, with_last=self._log.appended > number)

    def _end_requests(self, group: ClassicGroup) -> None:
        """Have the members that wait for a generation join again, now the consumer group."""
        for request in (*group.joining.values(), *group.syncing.values()):
            self._log.emit(Answer(request=request, error=ErrorCode.REBALANCE_IN_PROGRESS))

    # --- to a classic group ---

    def downgrades_without(self, group: ConsumerGroup, member_ids: Collection[str]) -> bool:
        """Return True when the group becomes a classic one when these members leave: the others
        speak the classic protocol."""
        left = group.size - len(member_ids)
        leaving = sum(group.members[each].classic is not None for each in member_ids)
        return (
            self._settings.consumer.migration_policy.downgrades
            and 0 < left <= self._settings.max_size
            and group.classic_count - leaving == left
            and leaving < len(member_ids)
            and self._topics.shapes is not None
        )

    def downgrade(
        self,
        group: ConsumerGroup,
        leaving: Collection[str],
        at: Moment,
        then: Callable[[], None],
    ) -> bool:
        """Make it a classic group of the other members, which join anew; call `then` afterwards.
        Return False while that is not complete."""
        steps = self._downgrading(group, leaving, at)
        if group.size <= AT_ONCE:
            _result(steps)
            then()
            return True

        def all_steps() -> Iterator[None]:
            yield from steps
            then()

        self._busy.convert(group.group_id, all_steps())
        return False

    def _downgrading(
        self, group: ConsumerGroup, leaving: Collection[str], at: Moment
    ) -> Generator[None, None, None]:
        made = yield from self._classic_group(group, leaving, at)
        if made is None:
            self._membership.remove(group, leaving)
            return
        self._put(group, made, [])
        # No leader has assigned this generation: whoever restores it begins the rebalance, too.
        self._rebalances.record(made, at, with_last=True)
        self._rebalances.prepare(made, at)
        for piece in pieces(group.subscribers):
            for name in piece:
                self._topics.unsubscribe(group.group_id, name)
            yield
        for members in pieces(made.members.values()):
            for member in members:
                self._rebalances.plan_end(made, member, at)
            yield

    def empty_to_classic(self, group: ConsumerGroup) -> None:
        """Put a classic group in the place of one without members."""
        made = ClassicGroup(group_id=group.group_id, offsets=group.offsets, number=group.number)
        self._put(group, made, [])

    def _classic_group(
        self, group: ConsumerGroup, leaving: Collection[str], at: Moment
    ) -> Generator[None, None, ClassicGroup | None]:
        """Return the group of the other members; None when it can't be made."""
        made = ClassicGroup(
            group_id=group.group_id,
            offsets=group.offsets,
            number=group.number,
            state=GroupState.STABLE,
            generation=max(group.epoch, group.target_epoch),
            protocol_type=CONSUMER,
        )
        names = {shape.topic_id: name for name, shape in self._topics.of(group.subscribers).items()}
        assigned = 0
        for piece in pieces(group.members, AT_ONCE):
            for member_id in piece:
                classic = group.members[member_id].classic
                if member_id in leaving or classic is None:
                    continue
                member = _classic_member(member_id, group.members[member_id], classic, at)
                if not made.supports(CONSUMER, member.offer) or not made.offers.has_room_for(
                    member.offer, instead_of=None
                ):
                    return None
                made.add(member)
                subscription = decode_subscription(classic.protocols[0][1])
                target = group.target(member_id)
                partitions = {names[each]: target[each] for each in target if each in names}
                version = 0 if subscription is None else subscription.version
                member.assignment = write_assignment(version, partitions)
                assigned += len(member.assignment)
            yield
        made.protocol = made.choose_protocol()
        tombstones = (len(group.group_id) + ENTRY_BYTES) * len(group.content)
        size = made.bytes_after(member, made.sizes.members) + assigned + tombstones
        return made if size <= self._settings.record_max_bytes else None


AT_ONCE = 50
"""Members that are converted in one step, at some 40 µs each."""

ASSIGNED_FACTOR = 6
"""How many times the bytes of a classic assignment its two records may take, with the id of a topic
in the place of a short name."""

MEMBER_BYTES = 500
"""The keys and lengths of a member's records."""

ENTRY_BYTES = 100
"""A tombstone besides the name of its group, with a member id as clients make them."""


def _refused(group: ClassicGroup, reason: str) -> Refusal:
    message = f"group {group.group_id} can't become a consumer group: {reason}"
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _result(steps: Generator[None, None, ResultT]) -> ResultT:
    """Do all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: ResultT = end.value
            return result


def _consumer_member(member: Member, subscription: MemberSubscription) -> ConsumerMemberRecord:
    protocols = tuple(zip(member.offer.names.names, member.offer.metadata, strict=True))
    return ConsumerMemberRecord(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberRecord(
            session_timeout_ms=member.session_timeout_ms, protocols=protocols
        ),
    )


def _classic_member(
    member_id: str, record: ConsumerMemberRecord, classic: ClassicMemberRecord, at: Moment
) -> Member:
    return Member(
        member_id=member_id,
        instance_id=record.instance_id,
        client_id=record.client_id,
        client_host=record.client_host,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        offer=Offer(classic.protocols),
        deadline_ms=at.now_ms + classic.session_timeout_ms,
    )


def _in_order(
    group_id: str, epoch: int, members: list[tuple[str, ConsumerMemberRecord, Assignment]]
) -> Iterator[tuple[ConsumerRecordKey, ConsumerRecord]]:
    """Return the records of a group whose members have all that they are to have."""
    yield ConsumerGroupKey(group_id), ConsumerGroupRecord(epoch=epoch)
    yield TargetKey(group_id), TargetRecord(epoch=epoch)
    for member_id, record, assignment in members:
        yield ConsumerMemberKey(group_id, member_id), record
        yield TargetMemberKey(group_id, member_id), TargetMemberRecord(assignment=assignment)
        yield (
            CurrentAssignmentKey(group_id, member_id),
            CurrentAssignmentRecord(
                member_epoch=epoch,
                previous_epoch=epoch,
                state=MemberState.STABLE,
                assigned=assignment,
                pending_revocation={},
            ),
        )
