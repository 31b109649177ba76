"""The batch source where Spark passes it the filters of a query.

Spark does so only with `spark.sql.python.filterPushdown.enabled`, and refuses a reader that takes
filters without it. It plans pushdown in a worker process of its own, so that process alone makes
this reader.
"""

import sys
from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql.datasource import Filter

from connector.options.source_options import SourceOptions
from connector.source.batch_reader import HeadraceBatchReader
from connector.source.offset_range import OffsetRange
from connector.source.pushdown.narrowing import Narrowing, narrow
from connector.source.pushdown.typed_narrowing import narrow_typed
from connector.source.typed.reading import Reading

PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def plans_pushdown() -> bool:
    """Whether this is the worker process in which Spark passes filters."""
    if PUSHDOWN_WORKER in sys.modules:
        return True
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == PUSHDOWN_WORKER


class HeadracePushdownReader(HeadraceBatchReader):
    """A batch reader that takes the filters of the query."""

    def __init__(self, options: SourceOptions, reading: Reading | None = None) -> None:
        super().__init__(options, reading)
        self._narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Returns the filters that Spark has to apply again."""
        if self._reading is None or self._reading.typed is None:
            self._narrowing, left = narrow(filters)
            return left
        typed, self._narrowing, left = narrow_typed(self._reading.typed, filters)
        self._reading = replace(self._reading, typed=typed)
        return left

    def _narrowed(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        narrowed = self._narrowing.clip(ranges)
        at_ms = self._narrowing.start_timestamp_ms
        if at_ms is None or not narrowed:
            return narrowed
        asked = dict.fromkeys((each.topic_partition for each in narrowed), at_ms)
        return self._narrowing.begin_at(narrowed, self._metadata.offsets_at(asked))
