"""The byte positions at which recent reads ended. An entry is for one segment only, so that it is
never used for another.

A consumer or follower that keeps up asks next for the offset where its last read ended, and all
reads are bounded by the same high watermark; both are found here without the index. Truncation
clears all entries.
"""

POSITIONS_MAX = 64
"""The most positions: more than the readers that usually follow one partition."""


class ReadPositions:
    """Offsets and their byte positions."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, tuple[object, int]] = {}

    def get(self, segment: object, offset: int) -> int | None:
        """Return the position in `segment` of the first batch that ends at or after `offset`, or of
        the end of the file.
        """
        place = self._places.get(offset)
        return place[1] if place is not None and place[0] is segment else None

    def put(self, segment: object, offset: int, position: int) -> None:
        places = self._places
        if len(places) >= POSITIONS_MAX and offset not in places:
            del places[next(iter(places))]
        places[offset] = (segment, position)

    def clear(self) -> None:
        self._places.clear()
