"""Which files are put together, so that there are few and each row is rewritten seldom.

Files have sizes in tiers: each is `FAN_IN` times the one below it, up to the target. A run of
neighbours of one tier, or smaller, becomes one file of the next tier when there are `FAN_IN` of
them. So a row is rewritten once for each tier. A sweep of the tail puts together what is below the
target, whatever its number.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

FAN_IN = 10
"""A larger one rewrites less, and leaves more files."""

FULL_SHARE = 0.85
"""A file of this share of the target is left as it is."""

MOST_FILES = 500
"""The most of one group: all of them are open at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFile:
    """An active file that we wrote."""

    path: str
    size_bytes: int
    order: int
    """The table's version for which the oldest of its rows were written."""
    partition: tuple[tuple[str, str | None], ...] = ()
    """The values by which the table's files are divided."""


def plan_compaction(
    files: Iterable[LakeFile], target_bytes: int, *, whole_tail: bool = False
) -> list[tuple[LakeFile, ...]]:
    """Return groups of files, each to become one of about `target_bytes`, or of the next tier. With
    `whole_tail` all that are below the target are put together."""
    plans: list[tuple[LakeFile, ...]] = []
    ordered = sorted(files, key=lambda each: (each.partition, each.order, each.path))
    for _, of_partition in groupby(ordered, key=lambda each: each.partition):
        small = [each for each in of_partition if each.size_bytes < target_bytes * FULL_SHARE]
        if whole_tail:
            plans += [group for group in _cut(small, target_bytes) if len(group) > 1]
        else:
            plans += _of_tiers(small, target_bytes)
    return plans


def _of_tiers(small: Sequence[LakeFile], target_bytes: int) -> list[tuple[LakeFile, ...]]:
    """Return the groups of the lowest tier that has some; later plans see those above it."""
    tier_of = {each.path: _tier(each.size_bytes, target_bytes) for each in small}
    for tier in sorted(set(tier_of.values())):
        runs = groupby(small, key=lambda each: tier_of[each.path] <= tier)
        groups = [
            group
            for is_low, run in runs
            if is_low
            for group in _cut(list(run), target_bytes)
            if len(group) > 1
            and (
                _is_full(group, target_bytes)
                or sum(tier_of[each.path] == tier for each in group) >= FAN_IN
            )
        ]
        if groups:
            return groups
    return []


def _cut(run: Sequence[LakeFile], target_bytes: int) -> list[tuple[LakeFile, ...]]:
    """Return neighbours in groups that are full, but for the last one. None has twice the
    target."""
    groups: list[list[LakeFile]] = []
    for each in run:
        if groups and not _is_full(groups[-1], target_bytes) and len(groups[-1]) < MOST_FILES:
            groups[-1].append(each)
        else:
            groups.append([each])
    return [tuple(group) for group in groups]


def _is_full(group: Sequence[LakeFile], target_bytes: int) -> bool:
    return sum(each.size_bytes for each in group) >= target_bytes * FULL_SHARE


def _tier(size_bytes: int, target_bytes: int) -> int:
    """Return 0 for the smallest files; a tier is FAN_IN times the one below it."""
    tier = 0
    limit = max(target_bytes // FAN_IN**4, 1)
    while size_bytes >= limit and tier < 4:
        limit *= FAN_IN
        tier += 1
    return tier
