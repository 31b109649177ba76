"""The assignments that the leader of a classic group gives the members: no IO.

Eager members give all up, and take what their names' order says (`range`). Cooperative ones keep
what they have: in a first generation those that have too much give some up, in a second others
take it. Source: KIP-429.
"""

import struct
from collections.abc import Mapping

from storage_engine.client.consumer.range_assignment import assign_ranges
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.consumer_protocol import encode_assignment, encode_subscription

EAGER, COOPERATIVE = "range", "cooperative-sticky"

_VERSION = struct.Struct(">h")
_OWNED = struct.Struct(">i")
_WITH_OWNED = 1

Owned = frozenset[int]


def subscription(topic: str, owned: Owned) -> bytes:
    """Encode the metadata of a member, version 1: with the partitions that it owns."""
    plain = encode_subscription([topic])[_VERSION.size :]
    numbers = sorted(owned)
    name = topic.encode()
    parts = [_VERSION.pack(_WITH_OWNED), plain, _OWNED.pack(bool(numbers))]
    if numbers:
        parts += [_VERSION.pack(len(name)), name, _OWNED.pack(len(numbers))]
        parts.append(struct.pack(f">{len(numbers)}i", *numbers))
    return b"".join(parts)


def owned_of(metadata: bytes) -> Owned:
    """Return the partitions in what `subscription` has encoded."""
    at = _VERSION.size + _OWNED.size
    (length,) = _VERSION.unpack_from(metadata, at)
    at += _VERSION.size + length + _OWNED.size
    (topics,) = _OWNED.unpack_from(metadata, at)
    if not topics:
        return frozenset()
    at += _OWNED.size
    (length,) = _VERSION.unpack_from(metadata, at)
    at += _VERSION.size + length
    (count,) = _OWNED.unpack_from(metadata, at)
    return frozenset(struct.unpack_from(f">{count}i", metadata, at + _OWNED.size))


def assigned(
    strategy: str, topic: str, partitions: int, members: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return the assignment of each member, encoded; `members` has their metadata."""
    if strategy == EAGER:
        ranges = assign_ranges({name: [topic] for name in members}, {topic: partitions})
        return {member: encode_assignment(given) for member, given in ranges.items()}
    kept = cooperative(partitions, {name: owned_of(data) for name, data in members.items()})
    return {
        name: encode_assignment(TopicPartition(topic, number) for number in given)
        for name, given in kept.items()
    }


def cooperative(partitions: int, owned: Mapping[str, Owned]) -> dict[str, Owned]:
    """Return what each member may have in this generation: never what another has had until now."""
    least, longer = divmod(partitions, len(owned))
    # Those that have most may have one more, so that as few as possible move.
    order = sorted(owned, key=lambda name: (-len(owned[name]), name))
    share = {name: least + (place < longer) for place, name in enumerate(order)}
    taken: set[int] = set()
    kept: dict[str, list[int]] = {}
    for name in order:
        kept[name] = [number for number in sorted(owned[name]) if number not in taken]
        del kept[name][share[name] :]
        taken.update(kept[name])
    given_up = set().union(*owned.values()) - taken
    free = [n for n in range(partitions) if n not in taken and n not in given_up]
    for name in reversed(order):
        while len(kept[name]) < share[name] and free:
            kept[name].append(free.pop())
    return {name: frozenset(numbers) for name, numbers in kept.items()}
