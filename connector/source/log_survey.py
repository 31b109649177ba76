"""What the planner learns of the logs in one flight of requests: their ends, for the next
micro-batch, and what handing out its ranges needs a moment later, their starts and new metadata.

Rule: a survey saves requests and decides nothing. Whatever it tells may have changed since, as any
answer may have; so tasks check again, and a survey that is not young is not asked.
"""

import time
from collections.abc import Mapping

from connector.options.offset_specs import EARLIEST
from connector.source.offset_lookup import OffsetLookup
from storage_engine.core.ids import TopicPartition

YOUNG_MS = 1_000
"""Spark hands out the ranges of a micro-batch some 50 ms after it was planned."""


class LogSurvey:
    """An `OffsetLookup` that knows the starts of the logs while it is young, and asks `lookup` for
    all else."""

    def __init__(self, lookup: OffsetLookup, earliest: Mapping[TopicPartition, int]) -> None:
        """To be made right after the answers."""
        self._lookup = lookup
        self._earliest = earliest
        self._asked_at = time.monotonic()

    @property
    def metadata_age_ms(self) -> int:
        """How old the metadata of topics may be when ranges are handed out: no older than the
        survey, and 0 when it is not young."""
        return YOUNG_MS if self._is_young else 0

    @property
    def earliest(self) -> Mapping[TopicPartition, int]:
        """The starts of the logs, as far as they are known."""
        return self._earliest if self._is_young else {}

    @property
    def _is_young(self) -> bool:
        return time.monotonic() < self._asked_at + YOUNG_MS / 1000

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See `OffsetLookup`."""
        known = self.earliest
        found = {
            each: known[each]
            for each, at in timestamps_ms.items()
            if at == EARLIEST and each in known
        }
        left = {each: at for each, at in timestamps_ms.items() if each not in found}
        return {**found, **self._lookup.offsets_at(left)}
