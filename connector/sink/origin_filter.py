"""Drops rows that the sink has already, by their origin: topic, partition and offset. A row without
an origin is an error, because its replay could not be recognized.

    a source partition   (source, partition); `origin_sources` names the source
    committed            the highest offset of it that the sink has, inclusive; no entry: none
    a row is dropped     where its offset <= committed

The columns of the origin say where a row comes from and never where it goes, so they leave the
rows here. All work is done on whole columns, never on a row. Source: R-SPARK3.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connector.errors import ConnectorError, RowError
from connector.options.origin_options import OriginOptions
from storage_engine.core.ids import TopicPartition

NONE_COMMITTED = -1

Codes = npt.NDArray[np.int64]
"""The code of each row's source partition, for the rows of one Arrow record batch."""


@dataclass(frozen=True, slots=True)
class _Located:
    """The rows of one Arrow record batch by source partition."""

    codes: Codes
    offsets: npt.NDArray[np.int64]
    partitions: Mapping[int, TopicPartition]
    """The source partition of each code that occurs."""
    code_count: int


class OriginFilter:
    """Filters the rows of one task attempt."""

    def __init__(
        self,
        options: OriginOptions,
        committed: Mapping[TopicPartition, int],
        source_of: Callable[[str], str],
    ) -> None:
        """`committed` is inclusive. `source_of` is called once for each topic."""
        self._options = options
        self._committed = committed
        self._source_of = source_of
        self.sources: dict[str, str] = {}
        """The name of the source of each topic, for all rows so far."""
        self.highest: dict[TopicPartition, int] = {}
        """The highest offset of each source partition, inclusive, among rows that were not dropped.
        """
        self.dropped = 0
        """The number of rows that were dropped."""

    def fresh(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that the sink does not have, in their order and without the columns of their
        origin."""
        origin = self._origin_columns(rows)
        located = self._locate(*(rows.column(at) for at in origin))
        kept = located.offsets > self._thresholds(located)[located.codes]
        for source, offset in _highest(located, kept).items():
            self.highest[source] = max(offset, self.highest.get(source, offset))
        self.dropped += int(rows.num_rows - kept.sum())
        rest = rows.select([at for at in range(rows.num_columns) if at not in origin])
        return rest if kept.all() else rest.filter(pa.array(kept))

    def check_committed(self, rows: pa.RecordBatch) -> None:
        """Checks rows that are dropped because their micro-batch is committed. ConnectorError
        CHECKPOINT_REWOUND where the sink does not have them, so that they would be lost.

        A source partition that the sink does not know proves nothing: `idempotentKey` may be new.
        """
        located = self._locate(*(rows.column(at) for at in self._origin_columns(rows)))
        self._check_highest(_highest(located, located.offsets >= 0), self.sources)

    def check_passed(self, earlier: "OriginFilter") -> None:
        """`check_committed` for the rows that another filter has let through. They were written in
        a transaction that was aborted since, so they are not in the sink either."""
        self._check_highest(earlier.highest, earlier.sources)

    def _check_highest(
        self, highest: Mapping[TopicPartition, int], sources: Mapping[str, str]
    ) -> None:
        for source, offset in highest.items():
            if offset > self._committed.get(source, offset):
                topic = next(name for name, key in sources.items() if key == source.topic)
                raise ConnectorError(
                    "CHECKPOINT_REWOUND",
                    "the micro-batch is committed, but not with its row from "
                    f"{topic}-{source.partition} at offset {offset}: the checkpoint was put back "
                    "and counts batches from an older number; start with a new checkpoint, rows "
                    "that are written already are dropped by their origin",
                )

    def _origin_columns(self, rows: pa.RecordBatch) -> list[int]:
        """The indices of topic, partition and offset."""
        named = {field.name.lower(): at for at, field in enumerate(rows.schema)}
        return [named[each] for each in self._options.columns]

    def _locate(self, topics: pa.Array, partitions: pa.Array, offsets: pa.Array) -> _Located:
        columns = (topics, partitions, offsets)
        for name, column in zip(self._options.columns, columns, strict=True):
            if column.null_count:
                raise RowError(
                    "NULL_ORIGIN",
                    f"{column.null_count} of {len(column)} rows have null in the column '{name}' "
                    "of idempotentKey; leave such rows out, or fill it",
                )
        by_topic, by_partition = topics.dictionary_encode(), partitions.dictionary_encode()
        numbers = by_partition.dictionary.to_pylist()
        places = offsets.cast(pa.int64()).to_numpy()
        if min(numbers, default=0) < 0 or (len(places) and places.min() < 0):
            raise RowError("BAD_ORIGIN", "a partition or an offset of idempotentKey is less than 0")
        sources = [self._source(name) for name in by_topic.dictionary.to_pylist()]
        codes = by_topic.indices.to_numpy().astype(np.int64) * len(numbers)
        codes += by_partition.indices.to_numpy()
        count = len(sources) * len(numbers)
        occurring = np.flatnonzero(np.bincount(codes, minlength=count)).tolist()
        return _Located(
            codes,
            places,
            {
                code: TopicPartition(sources[code // len(numbers)], numbers[code % len(numbers)])
                for code in occurring
            },
            count,
        )

    def _source(self, topic: str) -> str:
        source = self.sources.get(topic)
        if source is None:
            source = self.sources[topic] = self._source_of(topic)
        return source

    def _thresholds(self, located: _Located) -> npt.NDArray[np.int64]:
        thresholds = np.full(located.code_count, NONE_COMMITTED, dtype=np.int64)
        for code, source in located.partitions.items():
            thresholds[code] = self._committed.get(source, NONE_COMMITTED)
        return thresholds


def _highest(located: _Located, counted: npt.NDArray[np.bool_]) -> dict[TopicPartition, int]:
    """The highest offset of the `counted` rows by source partition, without partitions that have no
    such row."""
    highest = np.full(located.code_count, NONE_COMMITTED, dtype=np.int64)
    np.maximum.at(highest, located.codes[counted], located.offsets[counted])
    return {
        source: int(highest[code])
        for code, source in located.partitions.items()
        if highest[code] != NONE_COMMITTED
    }
