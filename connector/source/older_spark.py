"""The streaming source on a Spark before 4.2, which does not say where a query is when it asks for
the latest offset, and knows no limits of micro-batches.

    new query      latestOffset(), initialOffset(), partitions(initial, end), latestOffset(), …
    restart        partitions(last, last), then the last micro-batch again unless it is done,
                   then latestOffset()
    done           commit(end), after the latestOffset() of the following micro-batch

So the source knows the place from `partitions` and `commit`, that is from Spark's offset log. Until
Spark has said a place, an end is planned as that of a new query and marked as such
(`StreamOffset.is_first`): it holds where a new query begins, and counts from Spark's own start
where there is one.
"""

from dataclasses import replace

from pyspark.sql.datasource import InputPartition

from connector.errors import OptionError, without_traceback
from connector.options.source_options import SourceOptions
from connector.source.reading import Reading
from connector.source.stream_offset import OffsetJson, StreamOffset
from connector.source.stream_reader import HeadraceStreamReader
from connector.spark_classes import ReadAllAvailable


class OlderSparkStreamReader(HeadraceStreamReader):
    """Plans each micro-batch up to the ends of the logs."""

    def __init__(self, options: SourceOptions, reading: Reading | None = None) -> None:
        super().__init__(options, reading)
        for name, value in (
            ("maxOffsetsPerTrigger", options.max_offsets_per_trigger),
            ("minOffsetsPerTrigger", options.min_offsets_per_trigger),
        ):
            if value is not None:
                raise OptionError(
                    "NEEDS_NEWER_SPARK",
                    f"'{name}' needs Spark 4.2 or newer: this Spark lets no source in Python "
                    "limit a micro-batch; leave it out, and split large micro-batches with "
                    "maxRecordsPerPartition",
                )
        self._first: StreamOffset | None = None
        self._reached: OffsetJson | None = None
        """The last end that Spark has named. None until it names one."""
        self._answered: OffsetJson | None = None

    @without_traceback
    def latestOffset(self) -> OffsetJson:  # type: ignore[override]
        """The ends of the logs, or the very same offset as before where there is nothing to read,
        because Spark compares texts."""
        if self._reached is not None:
            planned = super().latestOffset(self._reached, ReadAllAvailable())
        else:
            first = super().latestOffset(self.initialOffset(), ReadAllAvailable())
            planned = replace(StreamOffset.from_json(first), is_first=True).to_json()
        if self._answered is None or not _is_same_place(planned, self._answered):
            self._answered = planned
        return self._answered

    @without_traceback
    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """Plan as on a newer Spark. With equal offsets Spark only reports the query's position."""
        self._reached = end
        return [] if start == end else super().partitions(start, end)

    def _first_place(self) -> StreamOffset:
        """Found once for each process: Spark may ask for the latest offset several times before it
        writes one down, and the query begins where the first was planned from."""
        if self._first is None:
            self._first = super()._first_place()
        return self._first

    @without_traceback
    def commit(self, end: OffsetJson) -> None:
        """Keep the end as the query's position, also of micro-batches whose rows were not read."""
        self._reached = end
        super().commit(end)


def _is_same_place(one: OffsetJson, other: OffsetJson) -> bool:
    """Whether both end at the same records, wherever they were planned from."""
    first, second = StreamOffset.from_json(one), StreamOffset.from_json(other)
    return (first.positions, first.topic_ids) == (second.positions, second.topic_ids)
