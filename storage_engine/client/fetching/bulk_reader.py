"""Reads what topics hold, in splits that anybody may read, anywhere, and again: bulk load.

    from storage_engine.client import BulkReader

    with BulkReader({"bootstrap.servers": "127.0.0.1:9092"}) as reader:
        for split in reader.splits(["clicks"], since_ms=1_767_225_600_000):
            for batch in reader.read(split):  # pyarrow.RecordBatch
                ...

A split always has the same records, however often and by whomever it is read: those of committed
transactions (or all: `isolation.level`) with offsets within it; what can't be had whole is an
error. Splits can be pickled. For one thread at a time. Source: R-CLI5.

A split of a topic with a schema has the columns that the schema had when the splits were made. Name
columns, and compare them, to read less:

    reader.read(split, columns=["id", "fare", "_offset"], where="fare > 10")
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

from storage_engine.client.closing import Closing
from storage_engine.client.cluster import EARLIEST, LATEST
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.fetching.typed_reading import (
    SCHEMA_WAIT_MS,
    Selection,
    TypedReading,
    TypedReadings,
    without_columns,
)
from storage_engine.client.security.security_rows import Given
from storage_engine.client.settings import (
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    DEFAULT_API_TIMEOUT_MS,
    FETCH_MAX_BYTES,
    REQUEST_TIMEOUT_MS,
    by_key,
    cluster_of,
    isolation_level,
    parse_settings,
)
from storage_engine.client.topic_schemas import TopicSchemas
from storage_engine.client.turn import Turn, in_turn, steps_in_turn
from storage_engine.core.errors import (
    ConfigError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    OffsetOutOfRangeError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.typed.projection import TypedWant

if TYPE_CHECKING:
    import pyarrow as pa

SPLIT_OFFSETS = 1_000_000
"""The default number of offsets in a split: the most that is read again after a failure, which
takes a few seconds."""

SETTINGS = by_key(
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    isolation_level("read_committed"),
    FETCH_MAX_BYTES,
    REQUEST_TIMEOUT_MS,
    DEFAULT_API_TIMEOUT_MS,
)
"""The settings of `BulkReader` by their keys. Names and defaults are Kafka's, but `isolation.level`
is read_committed, because aborted records are no data."""

_GUESSED_RECORD_BYTES = 512
_LEAST_FETCH_BYTES = 64 << 10
"""A short split is not fetched by the full size of a fetch: what lies beyond it is thrown away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A part of one partition: offsets from `start_offset` to below `end_offset`."""

    tp: TopicPartition
    topic_id: UUID
    """The id of the topic that was split. A topic that is created again under the same name has
    another id."""
    start_offset: int
    end_offset: int
    schema_version: int = 0
    """The version of the topic's schema whose columns it has; 0: it has records."""

    def __len__(self) -> int:
        """The number of offsets; there may be fewer records."""
        return self.end_offset - self.start_offset


class RecordsGoneError(HeadraceError):
    """Records of a split were deleted, or their topic was: it can't be read any more."""


class BulkReader(Closing):
    """Use it in a `with` block, or `close` it."""

    def __init__(self, config: Given) -> None:
        """`config`: see `SETTINGS`; values also as text; ConfigError for a wrong one. Opens nothing
        before the first call."""
        values = parse_settings(config, SETTINGS, client="bulk reader")
        self._cluster = cluster_of(values)
        self._turn = Turn("bulk reader", lambda _: self._cluster.close())
        self._schemas = TopicSchemas(self._cluster)
        self.isolation: str = values["isolation.level"]
        self._fetch_bytes: int = values["fetch.max.bytes"]

    @in_turn
    def splits(
        self,
        topics: Iterable[str],
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        split_offsets: int = SPLIT_OFFSETS,
    ) -> list[Split]:
        """Divides the present records of topics into splits of at most `split_offsets` offsets, by
        topic and partition. Each partition is read from its first record that is not older than
        `since_ms` (None: from its beginning) up to the first that is not older than `until_ms`
        (None: up to the end of the readable records). The end of a transaction counts as a record
        here."""
        if isinstance(topics, str):
            raise ConfigError(f"a list of topics is expected; give ['{topics}']")
        if split_offsets < 1:
            raise ConfigError(f"split_offsets is {split_offsets}; it must be 1 or more")
        names = sorted(set(topics))
        self._cluster.refresh(names)
        ids = {name: self._cluster.topic(name).topic_id for name in names}
        partitions = [
            TopicPartition(name, number)
            for name in names
            for number in sorted(self._cluster.topic(name).partitions)
        ]
        last = self._offsets(partitions, LATEST)
        starts = self._bounds(partitions, EARLIEST if since_ms is None else since_ms, last)
        ends = last if until_ms is None else self._bounds(partitions, until_ms, last)
        # Now: a row that is there has no later version.
        versions = {name: self._latest_version(name) for name in names}
        return [
            Split(
                tp=tp,
                topic_id=ids[tp.topic],
                start_offset=start,
                end_offset=end,
                schema_version=versions[tp.topic],
            )
            for tp in partitions
            for start, end in cut(starts[tp], ends[tp], split_offsets)
        ]

    def _bounds(
        self, partitions: Iterable[TopicPartition], at_ms: int, last: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        found = self._offsets(partitions, at_ms)
        return {tp: last[tp] if at < 0 else min(at, last[tp]) for tp, at in found.items()}

    def _offsets(
        self, partitions: Iterable[TopicPartition], at_ms: int
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, at_ms)
        return self._cluster.list_offsets(wanted, isolation=self.isolation)

    def _latest_version(self, topic: str) -> int:
        known = self._schemas.refresh(topic)
        return 0 if known is None else known.schema.latest.version

    def arrow_schema(
        self, split: Split, *, columns: Iterable[str] | None = None, where: str | None = None
    ) -> "pa.Schema":
        """The columns that `read` gives. ConfigError as there."""
        from storage_engine.client.fetching.record_tables import SCHEMA

        reading = self._reading(split, Selection.of(columns, where))
        return SCHEMA if reading is None else reading.arrow_schema

    def read(
        self, split: Split, *, columns: Iterable[str] | None = None, where: str | None = None
    ) -> "Iterator[pa.RecordBatch]":
        """The records of a split in order, with the columns of `Consumer.poll_table`, which also
        tells what `columns` and `where` are (of topics with a schema; ConfigError where they are
        wrong). Raises RecordsGoneError when the log does not have all of them any more,
        CorruptRecordError, and DeadlineExceededError when their leader was away for
        `default.api.timeout.ms`."""
        return steps_in_turn(self._turn, self._read(split, columns, where))

    def _read(
        self, split: Split, columns: Iterable[str] | None, where: str | None
    ) -> "Generator[pa.RecordBatch, None, None]":
        selection = Selection.of(columns, where)
        self._check_topic(split)
        reading = self._reading(split, selection)
        read = self._records(split) if reading is None else self._rows(split, reading)
        try:
            yield from read
        except OffsetOutOfRangeError as error:
            raise _gone(split, str(error)) from None
        finally:
            read.close()
        # Records are asked for by the topic's name: what came between two looks at its id is its.
        self._check_topic(split)

    def _records(self, split: Split) -> "Generator[pa.RecordBatch, None, None]":
        # Imported now: they bring Arrow.
        from storage_engine.client.fetching.record_tables import batch_of
        from storage_engine.protocol.records.record_decoder import iter_decoded

        with closing(self._fetches(split, split.start_offset, None)) as fetches:
            for fetched in fetches:
                for records in iter_decoded(
                    fetched.committed(),
                    start_offset=fetched.start_offset,
                    end_offset=split.end_offset,
                    include_headers=True,
                ):
                    yield batch_of(split.tp, records)

    def _rows(self, split: Split, reading: TypedReading) -> "Generator[pa.RecordBatch, None, None]":
        position = split.start_offset
        while position < split.end_offset:
            with closing(self._fetches(split, position, reading.want)) as fetches:
                for fetched in fetches:
                    if reading.outdated_by(fetched) is not None:
                        reading = self._renewed(reading, fetched)
                        break
                    for rows in reading.rows(fetched, end_offset=split.end_offset):
                        yield reading.batch_of(split.tp, rows)
                    position = fetched.next_offset

    def _fetches(
        self, split: Split, start_offset: int, typed_want: TypedWant | None
    ) -> Generator[FetchedBatches, None, None]:
        guessed_bytes = (split.end_offset - start_offset) * _GUESSED_RECORD_BYTES
        return BatchFetcher(
            self._cluster,
            {split.tp: (start_offset, split.end_offset)},
            max_bytes=min(self._fetch_bytes, max(_LEAST_FETCH_BYTES, guessed_bytes)),
            isolation=self.isolation,
            typed_wants=None if typed_want is None else {split.tp.topic: typed_want},
        ).read()

    def _reading(self, split: Split, selection: Selection) -> TypedReading | None:
        """How the split's rows are read; None where it has records."""
        topic, version = split.tp.topic, split.schema_version
        if not version:
            if not selection.is_everything:
                raise without_columns(topic)
            return None
        known = self._schemas.get(topic)
        if known is None or len(known.schema.versions) < version:
            known = self._schemas.refresh(topic)
        if known is None or known.topic_id != split.topic_id:
            raise _gone(split, "the topic was deleted, and is another one now")
        known.schema.version(version)
        schema = replace(known.schema, versions=known.schema.versions[:version])
        return TypedReading(topic, replace(known, schema=schema), selection)

    def _renewed(self, reading: TypedReading, fetched: FetchedBatches) -> TypedReading:
        """A reading for a batch of a later version: the broker that was asked for the schema had
        not heard of it."""
        readings = TypedReadings(self._cluster)
        readings.select(reading.selection)
        renewed = readings.renewed(reading.topic, fetched, wait_ms=SCHEMA_WAIT_MS)
        if renewed is None or renewed.arrow_schema != reading.arrow_schema:
            raise HeadraceError(
                f"the schema of topic '{reading.topic}' changed while it was divided into splits: "
                "make them anew"
            )
        return renewed

    def _check_topic(self, split: Split) -> None:
        name = split.tp.topic
        self._cluster.refresh([name])
        try:
            topic_id = self._cluster.topic(name).topic_id
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise _gone(split, "the topic was deleted") from None
            raise
        if topic_id != split.topic_id:
            raise _gone(split, "the topic was deleted, and is another one now")

    def close(self) -> None:
        """Close all connections, after the call that is at work."""
        self._turn.end()


def cut(start: int, end: int, most: int) -> list[tuple[int, int]]:
    """Half-open ranges of `most` offsets at most, as even as can be; none of an empty range."""
    size = end - start
    pieces = -(-size // most)
    bounds = [start + size * number // pieces for number in range(pieces + 1)] if size > 0 else []
    return list(pairwise(bounds))


def _gone(split: Split, reason: str) -> RecordsGoneError:
    return RecordsGoneError(
        f"records of {split.tp} from {split.start_offset} to {split.end_offset} are gone: {reason}"
    )
