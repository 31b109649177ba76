"""Chooses the form in which a reader gets the batches of a typed topic.

    follower                        the batches as stored
    client that says what it wants  as stored, or frames with some columns
    any other client                records of JSON or Avro, see `foreign_answers`; until it makes
                                    them the stored batches stand for them

Frames are bounded by the bytes that are sent and by the batches that are looked at, of which a
filter may skip nearly all.
"""

from typing import TypeGuard

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ports import SlicedRecords
from storage_engine.core.typed.foreign_format import ForeignFormat
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.core.typed.unreadable_schema import UnreadableSchema
from storage_engine.log.files.segment_files import LoadJob
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.segments.projected_slice import BATCHES_MAX, ProjectedSlice
from storage_engine.log.segments.segment_slice import SegmentSlice
from storage_engine.protocol.apis.fetch import FetchPartition
from storage_engine.protocol.typed.projection import WANT_FRAMES, TypedWant

UNCONVERTED_MAX_BYTES = 1 << 20
"""The most stored bytes of a partition, or one batch, that are converted for one answer: as JSON
they may be ten times as many."""

VALUES_PER_BATCH = 100
"""The number of filter values that cost as much as all other work for a batch."""


class LookBudget:
    """The batches that the reads of one turn may examine."""

    __slots__ = ("is_used_up", "left")

    def __init__(self) -> None:
        self.left: float = BATCHES_MAX
        self.is_used_up = False
        """True when a read has ended because of the budget: what it has found is to be sent."""

    def batches_max(self, want: TypedWant) -> int:
        """The most batches for a read; 0 when the budget is used up."""
        return int(self.left / _cost(want)) if self.left < BATCHES_MAX else _most(want)

    def spend(self, batches: int, most: int, want: TypedWant) -> None:
        """Count `batches` examined by a read that was allowed `most`."""
        self.left -= batches * _cost(want)
        if batches >= most:
            self.is_used_up = True


def _cost(want: TypedWant) -> float:
    return 1 + sum(len(each.values) for each in want.comparisons) / VALUES_PER_BATCH


def _most(want: TypedWant) -> int:
    return max(1, int(BATCHES_MAX / _cost(want)))


class UnconvertedSlice(SlicedRecords):
    """Stored batches of a typed topic for a client that takes records of JSON or Avro."""

    __slots__ = ("foreign_format", "records", "schema")

    def __init__(
        self, records: SegmentSlice, schema: TopicSchema, foreign_format: ForeignFormat
    ) -> None:
        super().__init__([records])
        self.records = records
        self.schema = schema
        self.foreign_format = foreign_format

    @property
    def end_offset(self) -> int:
        return self.records.end_offset

    def is_warm(self) -> bool:
        return self.records.is_warm()

    def load_job(self) -> LoadJob:
        return self.records.load_job()

    def copy(self) -> memoryview:
        """The bytes, with memory of their own; from the page cache, unless they were evicted just
        now."""
        records = self.records
        cached = records.read_cached(0, len(records))
        return memoryview(records.read_bytes() if cached is None else cached)


FoundRecords = SegmentSlice | ProjectedSlice | UnconvertedSlice


def is_cold_slice(records: object) -> TypeGuard[FoundRecords]:
    """Whether records to be sent are not all in the page cache."""
    return (
        isinstance(records, SegmentSlice | ProjectedSlice | UnconvertedSlice)
        and not records.is_warm()
    )


def read_for_consumer(
    log: PartitionLog,
    wanted: FetchPartition,
    budget: LookBudget,
    *,
    max_bytes: int,
    max_offset: int,
    at_least_one: bool,
    wait: bool,
) -> FoundRecords | None:
    """Read for a client in the form that it takes; see `LogReads.read`."""
    want, schema = wanted.want, log.config.schema
    offset = wanted.fetch_offset
    if want is not None and want.mode == WANT_FRAMES:
        most = budget.batches_max(want)
        if not most:
            budget.is_used_up = True
            return None
        frames = log.reads.read_projected(
            offset,
            want,
            max_bytes=max_bytes,
            max_offset=max_offset,
            at_least_one=at_least_one,
            batches_max=most,
            wait=wait,
        )
        if frames is not None:
            budget.spend(frames.batches, most, want)
        return frames
    if want is None and schema is not None:
        if isinstance(schema, UnreadableSchema):
            # A code that every client knows, and tries again after.
            raise KafkaError(schema.reason, ErrorCode.REPLICA_NOT_AVAILABLE)
        records = log.reads.read(
            offset,
            max_bytes=min(max_bytes, UNCONVERTED_MAX_BYTES),
            max_offset=max_offset,
            at_least_one=at_least_one,
            wait=wait,
        )
        return (
            None
            if records is None
            else UnconvertedSlice(records, schema, log.config.foreign_format)
        )
    return log.reads.read(
        offset, max_bytes=max_bytes, max_offset=max_offset, at_least_one=at_least_one, wait=wait
    )
