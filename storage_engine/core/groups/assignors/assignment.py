"""The partitions of a member, and what an assignor knows of each member."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]
"""The partitions by topic id; no topic is without partitions."""


class SubscribedMember(NamedTuple):
    topics: frozenset[UUID]
    instance_id: str | None
    current: Assignment
    """Its present target."""
