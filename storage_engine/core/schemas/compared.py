"""How two schemas are compared, part by part, and the lines that say why they are not compatible,
in the form of Confluent's registry.

A pair of parts that meets itself again, in recursive schemas, is taken to be compatible until it is
found not to be; then everything is judged once more with what is known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

_Part = TypeVar("_Part")

MAX_PAIRS = 200_000
"""The most pairs of parts that are compared for two schemas."""
MAX_WORK = 2_000_000
"""How much is looked at in all pairs together: fields, properties, members."""
MAX_LEVELS = 100
"""How deep parts may stand in each other to be compared."""

MAX_LINES = 200
"""The most reasons that are told."""


@dataclass(frozen=True, slots=True)
class Side:
    """The names of the reader's and the writer's schema: `new` is the one that somebody wants to
    register, `old` the one that is there."""

    reader: str = "new"
    writer: str = "old"

    def line(self, error_type: str, description: str, additional_info: str | None = None) -> str:
        more = "" if additional_info is None else f", additionalInfo:'{additional_info}'"
        return f"{{errorType:'{error_type}', description:'{description}'{more}}}"


class _TooLargeError(Exception):
    """The schemas are larger than what is compared."""


class Pairs(Generic[_Part]):
    """The pairs of parts of a reader's and a writer's schema, known by their identity."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._misfits: dict[tuple[int, int], list[str]] = {}
        self._fits: set[tuple[int, int]] = set()
        """Pairs that are taken to fit: judged in this round, or being judged."""
        self._kept: list[tuple[_Part, _Part]] = []
        """The parts, so that none gets the identity of another."""
        self._work = 0
        self._level = 0

    def judge(self, whole: Callable[[], list[str]]) -> list[str]:
        """Return the lines of the whole schemas, when no assumption is left."""
        try:
            while True:
                known = len(self._misfits)
                self._fits.clear()
                found = whole()
                if found or len(self._misfits) == known:
                    return list(dict.fromkeys(found))[:MAX_LINES]
        except _TooLargeError as error:
            why = f"The schemas are too large to compare: {error}"
            return [self._side.line("TYPE_MISMATCH", why)]

    def charge(self, work: int) -> None:
        """Count what a pair costs beside the pairs inside of it."""
        self._work += work
        if self._work > MAX_WORK:
            raise _TooLargeError("they have too many fields in too many pairs of parts")

    def compare(self, reader: _Part, writer: _Part, compare: Callable[[], list[str]]) -> list[str]:
        """Return why the one can't read the other; `compare` is asked when it is not known. Of a
        pair that was told before one reason is told again: many ways may lead to it."""
        pair = id(reader), id(writer)
        if pair in self._fits:
            return []
        if pair in self._misfits:
            return self._misfits[pair][:1]
        self._kept.append((reader, writer))
        if len(self._kept) > MAX_PAIRS:
            raise _TooLargeError(f"they have more than {MAX_PAIRS:,} pairs of parts")
        if self._level > MAX_LEVELS:
            raise _TooLargeError(f"they are nested more than {MAX_LEVELS} deep")
        self._level += 1
        self._fits.add(pair)
        found = compare()
        self._level -= 1
        if found:
            self._fits.discard(pair)
            self._misfits[pair] = found[:MAX_LINES]
        return found
