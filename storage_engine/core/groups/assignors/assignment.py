"""The input and output of an assignor: the members of a group with what they subscribe to, and the
partitions of each topic. Names of topics are resolved before."""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]
"""Partitions by topic id; no topic is without partitions."""


class SubscribedMember(NamedTuple):
    topics: frozenset[UUID]
    instance_id: str | None
    current: Assignment
    """The member's present target."""


Assignor = Callable[[Mapping[str, SubscribedMember], Mapping[UUID, int]], dict[str, Assignment]]
"""A function of the members by their ids and of the number of partitions of each topic. The result
has each member. The same input gives the same result, whatever the order of the mappings. A topic
that is not in the second mapping does not exist. Nothing that is passed is changed, and no member
is looked at later, so that a thread may run it."""
