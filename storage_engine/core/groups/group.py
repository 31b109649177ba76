"""The part that groups of both kinds share: the committed offsets, and the word of the group on who
may commit and read them and when they expire."""

import abc
import enum
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field
from typing import ClassVar

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import CommitOffsets, RequestingMember
from storage_engine.core.groups.records import CommittedOffsets, GroupEntry
from storage_engine.core.ids import TopicPartition

CONSUMER = "consumer"
"""The protocol type of consumers."""

RESTORED = 0
"""The record number of everything that a coordinator was restored from (see `coordinator_log`)."""


class GroupType(enum.Enum):
    """The kinds of groups, with their names in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(slots=True, kw_only=True)
class Group(abc.ABC):
    type: ClassVar[GroupType]
    group_id: str
    number: int = RESTORED
    """The number of the last record about the group."""
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)

    @property
    @abc.abstractmethod
    def state_name(self) -> str:
        """Return the name of the state in ListGroups."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Return the number of members."""

    @property
    @abc.abstractmethod
    def is_empty(self) -> bool:
        """Return True when it has no members."""

    @property
    @abc.abstractmethod
    def is_unused(self) -> bool:
        """Return True when it may be forgotten: it has neither members nor offsets."""

    @abc.abstractmethod
    def check_commit(self, event: CommitOffsets) -> ErrorCode:
        """Return NONE when the caller may commit offsets."""

    @abc.abstractmethod
    def check_read(self, caller: RequestingMember) -> ErrorCode:
        """Return NONE when the caller may read offsets."""

    @abc.abstractmethod
    def note_commit(self, caller: RequestingMember, now_ms: int) -> None:
        """Note that a member shows by a commit that it is there."""

    @abc.abstractmethod
    def subscribed(self) -> Set[str] | None:
        """Return the topics that members subscribe to; None when they are not known."""

    @abc.abstractmethod
    def expired(
        self, among: Collection[TopicPartition], wall_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """Return the partitions among these whose offsets have expired."""

    @abc.abstractmethod
    def tombstones(self) -> Iterator[GroupEntry]:
        """Return the tombstones of all its records but those of offsets."""
