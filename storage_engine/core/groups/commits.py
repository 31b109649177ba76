"""The offsets of all groups of one coordinator. Only members of the present generation may commit,
or any client while the group has no members. No client reads an offset that a failover could take
back.

Source: KIP-98, KIP-211 (expiry), KIP-229, KIP-447 (transactions of members), KIP-496.
"""

from collections.abc import Collection, Iterator, Set

from storage_engine.core.coordinator_log import PIECE, Answer, Moment, pieces
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import ClassicGroup
from storage_engine.core.groups.events import (
    CheckDeletedTopics,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    GroupLog,
    OffsetsDeleted,
    OffsetsRead,
    ReadOffsets,
)
from storage_engine.core.groups.group import Group
from storage_engine.core.groups.records import GroupContent, OffsetKey, PlacedOffset
from storage_engine.core.groups.settings import GroupSettings
from storage_engine.core.ids import TopicPartition


class Commits:
    """Commits, reads, deletes and expires the offsets of groups."""

    def __init__(self, log: GroupLog, groups: dict[str, Group], settings: GroupSettings) -> None:
        self._log = log
        self._groups = groups
        self._settings = settings
        self._first_order = 0
        """The order of the next offset that is appended, above those of all restored ones."""
        self._open: dict[int, set[str]] = {}
        """By producer id the groups with offsets in its open transaction."""

    def restore(self, content: GroupContent) -> Iterator[None]:
        """Take up the offsets in pieces, and have it checked which of their topics are gone."""
        self._first_order = content.next_order
        topics = set()
        for piece in pieces(content.offsets.items()):
            for key, placed in piece:
                self._group(key.group_id).offsets.put(key.partition, placed)
                topics.add(key.partition.topic)
            yield
        every = (
            (producer_id, key, placed)
            for producer_id, pending in content.pending.items()
            for key, placed in pending.items()
        )
        for some in pieces(every):
            for producer_id, key, placed in some:
                self._group(key.group_id).offsets.put_pending(producer_id, key.partition, placed)
                self._open.setdefault(producer_id, set()).add(key.group_id)
                topics.add(key.partition.topic)
            yield
        self._check_deleted(topics)

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ClassicGroup(group_id=group_id)
        return group

    def commit(self, event: CommitOffsets) -> None:
        code = self._refusal(event)
        if code is not ErrorCode.NONE:
            self._log.refuse(event.request, code)
            return
        group = self._group(event.group_id)
        group.note_commit(event.caller, event.at.now_ms)
        for tp, record in event.offsets.items():
            key = OffsetKey(event.group_id, tp)
            group.number = self._log.append((key, record), producer=event.producer)
            placed = PlacedOffset(self._first_order + group.number, record)
            if event.producer is None:
                group.offsets.put(tp, placed)
            else:
                group.offsets.put_pending(event.producer[0], tp, placed)
                self._open.setdefault(event.producer[0], set()).add(event.group_id)
        self._log.answer(Answer(request=event.request), after=group.number)

    def _refusal(self, event: CommitOffsets) -> ErrorCode:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(event.group_id)
        if group is not None:
            return group.check_commit(event)
        if event.caller.generation < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if event.knows_epochs else ErrorCode.ILLEGAL_GENERATION

    def read(self, event: ReadOffsets) -> None:
        group = self._groups.get(event.group_id)
        if group is None:
            self._log.emit(OffsetsRead(request=event.request))
            return
        code = group.check_read(event.caller)
        if code is not ErrorCode.NONE:
            self._log.refuse(event.request, code)
            return
        committed = group.offsets.committed
        unstable = group.offsets.unstable() if event.require_stable else set()
        unreadable = group.offsets.unreadable
        every = event.partitions is None
        known = {*committed, *unstable, *unreadable}
        wanted = known if every else set(event.partitions or ())
        stable = wanted - unstable
        answer = OffsetsRead(
            request=event.request,
            offsets={tp: each for tp, each in committed.items() if tp in stable},
            unstable=frozenset(wanted & unstable),
            unreadable=frozenset(wanted & (unreadable - unstable)),
        )
        self._log.answer(answer, after=group.number)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """End the offsets of a transaction, whose marker is in the log."""
        group_ids = self._open.pop(producer_id, set())
        if not group_ids:
            return
        number = self._log.count_appended()
        for group_id in group_ids:
            group = self._groups.get(group_id)
            if group is not None and group.offsets.end_transaction(producer_id, commits=commits):
                group.number = number

    def delete_offsets(self, event: DeleteOffsets) -> None:
        group = self._groups.get(event.group_id)
        code = ErrorCode.NONE
        subscribed: Set[str] = frozenset()
        if not event.group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif not group.is_empty:
            known = group.subscribed()
            if known is None:
                code = ErrorCode.NON_EMPTY_GROUP
            else:
                subscribed = known
        if group is None or code is not ErrorCode.NONE:
            self._log.refuse(event.request, code)
            return
        refused = frozenset(tp for tp in event.partitions if tp.topic in subscribed)
        self._remove(group, [tp for tp in event.partitions if tp not in refused])
        answer = OffsetsDeleted(request=event.request, refused=refused)
        self._log.answer(answer, after=group.number)

    def delete_group(self, event: DeleteGroup) -> None:
        group = self._groups.get(event.group_id)
        if not event.group_id:
            self._log.refuse(event.request, ErrorCode.INVALID_GROUP_ID)
        elif group is None:
            self._log.refuse(event.request, ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            self._log.refuse(event.request, ErrorCode.NON_EMPTY_GROUP)
        else:
            self._remove(group, group.offsets.partitions())
            self._forget(group)
            self._log.answer(Answer(request=event.request), after=group.number)

    def forget_topics(self, topics: frozenset[str]) -> Iterator[None]:
        """Remove the offsets of these topics, in pieces. What is committed between them is of later
        topics of the same names, and stays."""
        return self._forget_topics(topics, self._first_order + self._log.appended)

    def _forget_topics(self, topics: frozenset[str], last_order: int) -> Iterator[None]:
        looked_at = 0
        for group in list(self._groups.values()):
            for piece in pieces(group.offsets.partitions()):
                looked_at += len(piece)
                if looked_at > PIECE:
                    yield
                    looked_at = len(piece)
                gone = [tp for tp in piece if tp.topic in topics]
                self._remove(group, group.offsets.written_until(last_order, gone))
            looked_at += 1

    def expire(self, at: Moment) -> Iterator[None]:
        """Remove offsets that have expired, and groups that have neither members nor offsets; and
        have the driver check which topics with offsets are gone. Between the steps, whose number
        depends on the offsets, others have their turn."""
        topics: set[str] = set()
        looked_at = 0
        for group_id in list(self._groups):
            group = self._groups.get(group_id)
            if group is None:
                continue
            if looked_at > PIECE:
                looked_at = 0
                yield
            looked_at += 1
            for number, piece in enumerate(pieces(group.offsets.partitions())):
                if number:
                    yield
                if self._groups.get(group_id) is not group:
                    break
                looked_at += len(piece)
                retention_ms = self._settings.retention_ms
                self._remove(group, group.expired(piece, at.wall_ms, retention_ms))
                topics.update(tp.topic for tp in piece)
            if self._groups.get(group_id) is group and group.is_unused:
                self._forget(group)
        self._check_deleted(topics)

    def _check_deleted(self, topics: Collection[str]) -> None:
        """Have the driver check which of these topics are gone."""
        if topics:
            self._log.emit(CheckDeletedTopics(topics=frozenset(topics)))

    def _remove(self, group: Group, partitions: Collection[TopicPartition]) -> None:
        for tp in sorted(group.offsets.remove(partitions)):
            group.number = self._log.append((OffsetKey(group.group_id, tp), None))

    def _forget(self, group: Group) -> None:
        del self._groups[group.group_id]
        for entry in group.tombstones():
            group.number = self._log.append(entry)
