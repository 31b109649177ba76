"""A part of a segment that is known to be damaged."""

from typing import NamedTuple


class BadRange(NamedTuple):
    """Bytes that differ from what was appended; offsets and byte positions are half-open."""

    start_offset: int
    end_offset: int
    position: int
    end_position: int
    reason: str
