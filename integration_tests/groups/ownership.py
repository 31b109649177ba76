"""What members of a group have told, checked against what a group promises.

In one generation a partition has one owner; after a commit of one generation none of an older one
is acknowledged; no acknowledged offset is lost; a partition is without an owner for as long as
allowed only. Times are of one machine's monotonic clock.
"""

from collections.abc import Iterable, Sequence
from typing import Any

Event = dict[str, Any]
"""at_s, member, what:
assigned    partitions (all that it owns now), generation (None: not told)
revoked     partitions
committed   begun_s, generation, offsets: [partition, next offset]; acknowledged at `at_s`
refused     the same, not acknowledged
killed      by the test
"""


def two_owners(events: Iterable[Event]) -> list[str]:
    """Of a partition in one generation."""
    owners: dict[tuple[int, int], str] = {}
    found = []
    for event in events:
        if event["what"] != "assigned" or event["generation"] is None:
            continue
        for partition in event["partitions"]:
            key = event["generation"], partition
            owner = owners.setdefault(key, event["member"])
            if owner != event["member"]:
                found.append(f"{partition} in generation {key[0]}: {owner} and {event['member']}")
    return found


def stale_commits(events: Iterable[Event]) -> list[str]:
    """That were acknowledged though begun after one of a younger generation was."""
    commits = [
        (event["at_s"], event["begun_s"], event["generation"], partition, event["member"])
        for event in events
        if event["what"] == "committed" and event["generation"] is not None
        for partition, _ in event["offsets"]
    ]
    found = []
    youngest: dict[int, list[tuple[float, int]]] = {}
    for at_s, _, generation, partition, _ in sorted(commits):
        youngest.setdefault(partition, []).append((at_s, generation))
    for _, begun_s, generation, partition, member in commits:
        found += [
            f"{partition}: {member} of generation {generation} after {younger}"
            for at_s, younger in youngest[partition]
            if younger > generation and at_s < begun_s
        ]
    return found


def lost_offsets(events: Iterable[Event], stored: dict[int, int]) -> list[str]:
    """That were acknowledged and are not in `stored`, by partition what is committed in the end."""
    acknowledged: dict[int, int] = {}
    for event in events:
        if event["what"] == "committed":
            for partition, offset in event["offsets"]:
                acknowledged[partition] = max(acknowledged.get(partition, 0), offset)
    return [
        f"{partition}: {offset} was acknowledged, {stored.get(partition)} is stored"
        for partition, offset in acknowledged.items()
        if stored.get(partition, -1) < offset
    ]


def unowned_s(events: Sequence[Event], partitions: int, since_s: float) -> float:
    """The longest time for which a partition had no owner, from `since_s` (when all had one) to the
    last event."""
    owned: dict[str, set[int]] = {}
    free_since: dict[int, float] = {}
    longest = 0.0
    for event in sorted(events, key=lambda each: each["at_s"]):
        at_s, member = event["at_s"], event["member"]
        mine = owned.setdefault(member, set())
        before = set(mine)
        _follow(mine, event)
        for partition in mine - before:
            if partition in free_since:
                began_s = max(free_since.pop(partition), since_s)
                longest = max(longest, at_s - began_s)
        for partition in before - mine:
            if not any(partition in each for each in owned.values()):
                free_since[partition] = at_s
    if free_since:
        last_s = max(event["at_s"] for event in events)
        longest = max(longest, *(last_s - max(at_s, since_s) for at_s in free_since.values()))
    return longest


def owners_of(events: Iterable[Event]) -> dict[int, list[str]]:
    """By partition who owns it in the end."""
    owned: dict[str, set[int]] = {}
    for event in sorted(events, key=lambda each: each["at_s"]):
        _follow(owned.setdefault(event["member"], set()), event)
    found: dict[int, list[str]] = {}
    for member, partitions in owned.items():
        for partition in partitions:
            found.setdefault(partition, []).append(member)
    return found


def _follow(owned: set[int], event: Event) -> None:
    """What a member owns after the event."""
    match event["what"]:
        case "assigned":
            owned.clear()
            owned.update(event["partitions"])
        case "revoked":
            owned.difference_update(event["partitions"])
        case "killed":
            owned.clear()
