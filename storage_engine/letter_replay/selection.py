"""Selects dead letters, and counts those that wait.

Letters are selected by their headers alone, whole columns at a time.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.dead_letters import Letters

MAX_KINDS = 1_000
"""Pairs of topic and reason that are counted one by one: a reason may quote the record."""

OTHER_REASONS = "(other reasons)"

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSelection:
    """A letter is selected when all conditions that are given hold."""

    topics: frozenset[str] = frozenset()
    """Topics that letters came from; empty: any."""
    since_ms: int | None = None
    """Bound of the timestamp that the record had in its topic, inclusive."""
    until_ms: int | None = None
    """Bound of the same timestamp, exclusive."""
    reason: str | None = None
    """A regular expression that must be found in the reason."""

    def mask(self, letters: Letters) -> Mask:
        """Whether each letter is selected. A letter that does not say where it came from never is.
        ConfigError for a wrong regular expression."""
        selected = letters.complete
        if self.topics:
            selected = pc.and_(selected, pc.is_in(letters.topics, pa.array(sorted(self.topics))))
        if self.since_ms is not None:
            selected = pc.and_(selected, pc.greater_equal(letters.timestamps_ms, self.since_ms))
        if self.until_ms is not None:
            selected = pc.and_(selected, pc.less(letters.timestamps_ms, self.until_ms))
        if self.reason is not None:
            selected = pc.and_(selected, _found(letters.reasons, self.reason))
        return np.asarray(
            pc.fill_null(selected, False).to_numpy(zero_copy_only=False), dtype=np.bool_
        )


def _found(reasons: pa.Array, pattern: str) -> pa.BooleanArray:
    try:
        return pc.match_substring_regex(reasons, pattern)
    except pa.ArrowInvalid as error:
        text = " ".join(str(error).split())
        raise ConfigError(f"'{pattern}' is not a regular expression: {text}") from None


@dataclass(slots=True, kw_only=True)
class Survey:
    """Counts of the letters that wait in a dead-letter topic."""

    waiting: int = 0
    selected: int = 0
    without_origin: int = 0
    """The number of letters without an origin, which can't be sent back."""
    last_selected: dict[TopicPartition, int] = field(default_factory=dict)
    """By partition of the dead-letter topic, the offset of the last selected letter."""
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of selected letters by topic of origin and reason."""

    def count(self, tp: TopicPartition, offsets: pa.Array, letters: Letters, mask: Mask) -> None:
        """Count letters of one partition, in their order."""
        self.waiting += len(mask)
        self.without_origin += len(mask) - (pc.sum(letters.complete).as_py() or 0)
        found = np.flatnonzero(mask)
        if not len(found):
            return
        self.selected += len(found)
        self.last_selected[tp] = offsets[int(found[-1])].as_py()
        rows = pa.table({"topic": letters.topics, "reason": letters.reasons})
        kinds = rows.filter(pa.array(mask)).group_by(["topic", "reason"])
        for row in kinds.aggregate([([], "count_all")]).to_pylist():
            kind = (row["topic"], (row["reason"] or b"").decode("utf-8", "replace"))
            if kind not in self.kinds and len(self.kinds) >= MAX_KINDS:
                kind = (row["topic"], OTHER_REASONS)
            self.kinds[kind] += row["count_all"]


def first_of(mask: Mask, limit: int) -> Mask:
    """The first `limit` of the selected letters."""
    return mask & (np.cumsum(mask) <= limit)
