"""The protocols that the members of a group offer, counted, so that a JoinGroup costs what its own
member offers and not what all others do.

Members with the same list of names share it. Different lists are bounded: the choice of a protocol
looks at each of them. Source: Kafka's classic group protocol.
"""

from collections import Counter
from collections.abc import Iterable

LISTS_MAX = 1_000
"""Different lists of protocols in one group. The members of a group run one program, or two while
it is replaced."""

OFFERED_MAX_BYTES = 64 << 20
"""Bytes of the metadata of all protocols of all members, and of their names: only those of the
chosen protocol come into the group's record, which has a bound of its own."""

Protocols = Iterable[tuple[str, bytes]]


class NameList:
    """The names of the protocols that a member offers, in its order of preference."""

    __slots__ = ("count", "names", "places", "size")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.places = {name: place for place, name in enumerate(names)}
        self.size = sum(len(name.encode()) for name in names)
        self.count = 0
        """The number of members with this list."""


class Offer:
    """The protocols of one member. Of a name that occurs twice the first counts."""

    __slots__ = ("metadata", "names")

    def __init__(self, protocols: Protocols) -> None:
        found: dict[str, bytes] = {}
        for name, metadata in protocols:
            found.setdefault(name, metadata)
        self.names = NameList(tuple(found))
        self.metadata = tuple(found.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Offer):
            return NotImplemented
        return self.names.names == other.names.names and self.metadata == other.metadata

    __hash__ = None  # type: ignore[assignment]

    def of(self, protocol: str | None) -> bytes:
        """Return the metadata for a protocol; nothing for one that is not offered."""
        place = -1 if protocol is None else self.names.places.get(protocol, -1)
        return b"" if place < 0 else self.metadata[place]

    @property
    def size(self) -> int:
        return sum(map(len, self.metadata))


class Offers:
    __slots__ = ("_lists", "_lists_with", "size")

    def __init__(self) -> None:
        self._lists: dict[tuple[str, ...], NameList] = {}
        self._lists_with: dict[str, int] = {}
        """The number of different lists that have a protocol, by its name."""
        self.size = 0
        """Bytes of all metadata, and of the names in each list."""

    def add(self, offer: Offer) -> None:
        known = offer.names = self._lists.setdefault(offer.names.names, offer.names)
        known.count += 1
        self.size += offer.size
        if known.count == 1:
            self.size += known.size
            for name in known.names:
                self._lists_with[name] = self._lists_with.get(name, 0) + 1

    def remove(self, offer: Offer) -> None:
        known = offer.names
        known.count -= 1
        self.size -= offer.size
        if known.count:
            return
        self.size -= known.size
        del self._lists[known.names]
        for name in known.names:
            self._lists_with[name] -= 1
            if not self._lists_with[name]:
                del self._lists_with[name]

    def has_room_for(self, offer: Offer, *, instead_of: Offer | None) -> bool:
        """Return True when another offer, or one in the place of `instead_of`, keeps the bounds."""
        is_other_list = offer.names.names not in self._lists
        lists = len(self._lists) - (instead_of is not None and instead_of.names.count == 1)
        if is_other_list and lists >= LISTS_MAX:
            return False
        size = self.size + offer.size + (offer.names.size if is_other_list else 0)
        return size - (0 if instead_of is None else instead_of.size) <= OFFERED_MAX_BYTES

    def supports(self, names: Iterable[str], *, but_for: Offer | None = None) -> bool:
        """Return True when one of these protocols is offered by all members; the member with the
        offer `but_for` is not counted."""
        lists = len(self._lists)
        if but_for is None or but_for.names.count > 1:
            return any(self._lists_with.get(name, 0) == lists for name in names)
        own = but_for.names.places
        return any(self._lists_with.get(name, 0) - (name in own) == lists - 1 for name in names)

    def chosen(self, oldest: Offer) -> str:
        """Choose the protocol that most members prefer among those that all support. Among
        protocols with equal votes, the preference of the oldest member decides."""
        lists = len(self._lists)
        common = {name for name in oldest.names.names if self._lists_with[name] == lists}
        votes: Counter[str] = Counter()
        for each in self._lists.values():
            votes[next(filter(common.__contains__, each.names))] += each.count
        most = max(votes.values())
        return next(name for name in oldest.names.names if votes[name] == most)
