"""The content of the headers of dead letters (`dead_letter_headers`). Whole columns are read, never
single records; a letter without these headers is no error, it only has no origin.

Source: R-CLI4.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage_engine.protocol.dead_letter_headers import (
    OFFSET,
    PARTITION,
    REASON,
    TIMESTAMP,
    TOPIC,
)

_TOPIC_PATTERN = r"^[a-zA-Z0-9._-]{1,249}$"
_NUMBER_PATTERN = r"^(-1|[0-9]{1,18})$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """The dead-letter headers of records, as columns of one length; null where a record has no such
    header."""

    topics: pa.Array
    """string"""
    partitions: pa.Array
    """int64"""
    offsets: pa.Array
    """int64"""
    timestamps_ms: pa.Array
    """int64"""
    reasons: pa.Array
    """binary"""

    @property
    def complete(self) -> pa.Array:
        """Return a boolean column: True where a record has all headers about its origin."""
        known = pc.and_(self.topics.is_valid(), self.partitions.is_valid())
        return pc.and_(known, self.offsets.is_valid())


def read_letters(headers: pa.Array) -> Letters:
    """Read `headers`: list<struct<key, value>>, as records are decoded. The last of equal names
    counts."""
    parents = pc.list_parent_indices(headers).to_numpy()
    entries = headers.flatten()
    names, values = entries.field("key"), entries.field("value")

    def column(name: str) -> pa.Array:
        found = np.flatnonzero(pc.equal(names, name).to_numpy(zero_copy_only=False))
        places = np.full(len(headers), -1, dtype=np.int64)
        places[parents[found]] = found
        return values.take(pa.array(places, mask=places < 0))

    return Letters(
        topics=_matching(column(TOPIC), _TOPIC_PATTERN).cast(pa.string()),
        partitions=_numbers(column(PARTITION)),
        offsets=_numbers(column(OFFSET)),
        timestamps_ms=_numbers(column(TIMESTAMP)),
        reasons=column(REASON),
    )


def without_reason(headers: pa.Array) -> pa.Array:
    """Return the same lists without the reason's header; null stays null."""
    entries = headers.flatten()
    kept = pc.not_equal(entries.field("key"), REASON).to_numpy(zero_copy_only=False)
    parents = pc.list_parent_indices(headers).to_numpy()
    counts = np.bincount(parents[kept], minlength=len(headers))
    ends = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    mask = headers.is_null() if headers.null_count else None
    return pa.ListArray.from_arrays(ends, entries.filter(pa.array(kept)), mask=mask).cast(
        headers.type
    )


def _matching(column: pa.Array, pattern: str) -> pa.Array:
    fits = pc.match_substring_regex(column, pattern)
    return pc.if_else(fits, column, pa.scalar(None, column.type))


def _numbers(column: pa.Array) -> pa.Array:
    return _matching(column, _NUMBER_PATTERN).cast(pa.string()).cast(pa.int64())
