"""The batch source. It asks for the ends of the logs once, when the read is planned, so that every
task and every retry reads the same records.

It takes no filters of Spark (`pushFilters`): up to 4.3 Spark keeps the plan of a read in an object
that all scans of a frame share, so a read that one filter had narrowed would be what the frame's
other scans read.

Source: R-SPARK1, R-CLI5.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from connector.errors import OptionError, without_traceback
from connector.log_once import warn_once
from connector.options.offset_specs import EARLIEST, LATEST, Everywhere, OffsetSpec, PerPartition
from connector.options.source_options import SourceOptions
from connector.source.data_loss import earliest_of
from connector.source.offset_range import OffsetLookup, OffsetRange
from connector.source.offset_resolution import resolve
from connector.source.range_tasks import range_tasks
from connector.source.reading import Reading, TopicCheck
from connector.source.source_metadata import SourceMetadata
from connector.source.table_hint import tell_of_tables
from connector.source.tables import new_history
from connector.spark_workers import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa


class HeadraceBatchReader(DataSourceReader):
    """Plans the ranges of a bounded read, and reads them in tasks."""

    def __init__(self, options: SourceOptions, reading: Reading | None = None) -> None:
        """`reading`: the topics' schemas, as far as known; None: records are read."""
        _check_bounded("startingOffsets", options.starting, LATEST)
        _check_bounded("endingOffsets", options.ending, EARLIEST)
        self._options = options
        self._reading = reading
        self._metadata = SourceMetadata(options.connection, isolation_level=options.isolation_level)

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read. Without any record, Spark runs an empty task."""
        options = self._options
        warn_once(options.notes)
        if options.group_id is not None or options.group_id_prefix is not None:
            warn_once(["a batch read has no place in a log: it commits no offsets to a group"])
        if options.avro is not None and options.avro.may_evolve:
            warn_once(["'value.schema.evolution' has no effect in a batch read: it begins anew"])
        found = self._metadata.find_all(options.subscription)
        if self._reading is not None:
            TopicCheck(options, self._reading).check(found)
        partitions = found.partitions
        history = new_history(options, self._reading, {each.topic for each in partitions})
        lookup: OffsetLookup = self._metadata
        if history is not None:
            lookup = history.united(self._metadata, found.topic_ids)
        starts, ends = (
            resolve(
                spec,
                partitions,
                lookup,
                which=which,
                fail_on_data_loss=options.fail_on_data_loss,
                fall_back_to_latest=options.fall_back_to_latest,
            )
            for spec, which in (
                (options.starting or Everywhere(special=EARLIEST), "starting"),
                (options.ending or Everywhere(special=LATEST), "ending"),
            )
        )
        ranges = [
            OffsetRange(
                topic_partition=each,
                start_offset=starts[each],
                end_offset=ends[each],
                topic_id=found.topic_ids.get(each.topic),
            )
            for each in partitions
        ]
        tell_of_tables(options, options.starting or Everywhere(special=EARLIEST), starts)
        if history is None:
            return range_tasks(options, self._metadata, ranges)
        ranges = [each for each in ranges if len(each)]
        divided = history.divide(ranges, earliest_of(ranges, self._metadata))
        return [
            *history.tasks(divided.of_tables),
            *range_tasks(options, self._metadata, divided.of_logs),
        ]

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """Runs in a task. Spark's own empty partition has no ranges; with Spark 4.0 it is None."""
        from connector.source.record_reader import read_task

        prepare_worker()
        task = None if partition is None else partition.value
        if task is None:
            return iter(())
        plan = None if self._reading is None else self._reading.plan
        return read_task(self._options, task, plan=plan)


def _check_bounded(option: str, spec: OffsetSpec | None, senseless: int) -> None:
    """OptionError for a batch that begins at the end of a log or ends at its beginning."""
    word = {LATEST: "latest", EARLIEST: "earliest"}[senseless]
    match spec:
        case Everywhere(special=special):
            wrong = special == senseless
        case PerPartition(offsets=offsets):
            wrong = senseless in offsets.values()
        case _:
            wrong = False
    if wrong:
        raise OptionError(
            "BAD_OPTION",
            f"'{option}' can't be {word} ({senseless}) in a batch read: it reads nothing",
        )
