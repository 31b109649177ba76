"""Makes rows of fetched batches, for the two kinds of topics: those without a schema here, those
with one in `typed/typed_decoding.py`. How batches are fetched, and what follows an error, is the
same for both.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from connector.options.source_options import SourceOptions
from connector.source.arrow_batches import arrow_batches, arrow_batches_of_several
from connector.source.offset_range import OffsetRange
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import LogPiece, iter_decoded, iter_decoded_logs
from storage_engine.protocol.typed.projection import TypedWant

if TYPE_CHECKING:
    import pyarrow as pa


class RangeDecoding(Protocol):
    """Decodes the fetched batches of one task's ranges."""

    def wanted(self, ranges: Iterable[OffsetRange]) -> Mapping[str, TypedWant] | None:
        """The columns and rows to fetch of each typed topic; None: records are fetched."""
        ...

    def together(
        self, fetches: Iterable[FetchedBatches], ends: Mapping[TopicPartition, int]
    ) -> "Iterator[pa.RecordBatch]":
        """The rows of several partitions, up to the exclusive end of each."""
        ...

    def alone(
        self, fetches: Iterable[FetchedBatches], wanted: OffsetRange
    ) -> "Iterator[tuple[Iterator[pa.RecordBatch], int]]":
        """The rows of a range, piece by piece, and the offset at which the next piece begins."""
        ...


class RecordDecoding:
    """The columns of records. What came of several partitions is decoded in one pass, and goes to
    Spark in one piece: each pass, and each piece, has a cost of its own."""

    def __init__(self, options: SourceOptions) -> None:
        self._columns = options.columns
        names = {"include_keys": "key", "include_values": "value", "include_headers": "headers"}
        # The columns that cost a copy.
        self._included = {argument: name in self._columns for argument, name in names.items()}

    def wanted(self, ranges: Iterable[OffsetRange]) -> None:
        """See `RangeDecoding`."""

    def together(
        self, fetches: Iterable[FetchedBatches], ends: Mapping[TopicPartition, int]
    ) -> "Iterator[pa.RecordBatch]":
        """See `RangeDecoding`."""
        pieces = (
            LogPiece(each.tp, piece, each.start_offset, ends[each.tp])
            for each in fetches
            for piece in each.committed()
        )
        for decoded in iter_decoded_logs(pieces, **self._included):
            yield from arrow_batches_of_several(decoded, columns=self._columns)

    def alone(
        self, fetches: Iterable[FetchedBatches], wanted: OffsetRange
    ) -> "Iterator[tuple[Iterator[pa.RecordBatch], int]]":
        """See `RangeDecoding`."""
        pieces = (piece for each in fetches for piece in each.committed())
        for decoded in iter_decoded(
            pieces,
            start_offset=wanted.start_offset,
            end_offset=wanted.end_offset,
            **self._included,
        ):
            rows = arrow_batches(decoded, wanted.topic_partition, columns=self._columns)
            yield rows, decoded.offsets[-1].as_py() + 1
