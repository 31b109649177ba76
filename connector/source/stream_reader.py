"""The streaming source. What a micro-batch holds follows from Spark's offset log alone, never from
what this process remembers.

Spark calls the planning methods in one long-lived process and `read` in others. The
`InputPartition` is the only channel between them. Source: R-SPARK1.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from connector.connections import close_all
from connector.errors import without_traceback
from connector.log_once import warn_once
from connector.options.offset_specs import EARLIEST, LATEST, Everywhere
from connector.options.source_options import SourceOptions
from connector.source.avro.avro_read import check_same_schemas
from connector.source.data_loss import clip_to_logs, earliest_of, report_losses
from connector.source.group_commits import GroupOffsetCommits
from connector.source.lag import LAG_KEY, lag_to_json, offsets_behind
from connector.source.micro_batch_planning import PlannedMicroBatch, plan_next, restarted_partitions
from connector.source.offset_range import OffsetLookup
from connector.source.offset_resolution import resolve
from connector.source.range_tasks import range_tasks
from connector.source.reading import Reading, TopicCheck
from connector.source.source_metadata import FoundPartitions, LogSurvey, SourceMetadata
from connector.source.stream_offset import (
    INITIAL,
    OffsetJson,
    SchemaMark,
    StreamOffset,
    positions_to_json,
    ranges_between,
    recreated_topics,
)
from connector.source.table_hint import tell_of_tables
from connector.source.tables import new_history
from connector.spark_classes import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from connector.spark_workers import prepare_worker
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from connector.source.tables.table_history import TableHistory

IDLE_POLL_MS = 25
"""Spark asks an idle source for its latest offset 89 times a second; the source asks the brokers 40
times. It waits and then asks, instead of repeating an old answer, because Spark's
`processAllAvailable` must see what was written before the call.
"""

BEHIND_PATIENCE_MS = 10_000
"""A log that ends before the query's position for this long counts as truncated. The high watermark
of a new leader has to catch up first."""

RECREATED_PATIENCE_MS = 3_000
"""Brokers must report another topic id for this long before it is believed, because one broker may
have old metadata."""

BEHIND_POLL_MS = 100


class HeadraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches from offsets and reads their ranges."""

    def __init__(self, options: SourceOptions, reading: Reading | None = None) -> None:
        """`reading`: the topics' schemas, as far as known; None: records are read."""
        self._options = options
        self._reading = reading
        self._topic_check: TopicCheck | None = None
        self._metadata = SourceMetadata(options.connection, isolation_level=options.isolation_level)
        self._available_now_target: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._topic_ids: Mapping[str, UUID] = {}
        self._found = FoundPartitions(partitions=(), missing=())
        self._survey: LogSurvey | None = None
        self._expects_rows = False
        self._planned: Mapping[TopicPartition, int] = {}
        self._group_commits: GroupOffsetCommits | None = None
        self._history: TableHistory | None = None
        self._ask_not_before = 0.0
        self._planned_at = time.monotonic()
        self._handles_sigterm = False

    @without_traceback
    def initialOffset(self) -> OffsetJson:
        """An offset without positions; `latestOffset` finds the start of a new query. Spark calls
        this after a restart, too, when the checkpoint may have the start already: the options need
        not fit the partitions then."""
        self._stop_on_sigterm()
        warn_once(self._options.notes)
        return INITIAL.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options. Spark has none that is both a minimum and a maximum."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:
        """Notes the ends of the logs. This query reads nothing that arrives later."""
        self._stop_on_sigterm()
        partitions = self._metadata.find_all(self._options.subscription).partitions
        self._available_now_target = self._metadata.offsets_at(dict.fromkeys(partitions, LATEST))

    @without_traceback
    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """The end of the next micro-batch, or `start` itself where there is nothing to read."""
        self._stop_on_sigterm()
        begin = StreamOffset.from_json(start)
        self._check_schemas(begin)
        if begin.is_initial:
            begin = self._first_place()
        else:
            # Spark plans the next micro-batch when all before it are done.
            self._commit_to_group(begin)
        latest = self._latest_offsets_from(begin)
        planned = plan_next(
            begin,
            latest=latest,
            earliest=self._earliest_offsets(restarted_partitions(begin, latest, self._topic_ids)),
            max_offsets=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            topic_ids=self._topic_ids,
        )
        if planned.losses:
            self._found.check_told()
        report_losses(planned.losses, fail_on_data_loss=self._options.fail_on_data_loss)
        # Even an empty first micro-batch runs, to record where the query began.
        if (
            not begin.is_initial
            and not planned.losses
            and (planned.backlog == 0 or self._waits_for_more(planned, limit))
        ):
            self._ask_not_before = time.monotonic() + IDLE_POLL_MS / 1000
            self._planned = begin.positions
            self._expects_rows = False
            return start
        self._planned_at = time.monotonic()
        self._planned = planned.end.positions
        self._expects_rows = True
        return replace(planned.end, schemas=self._schemas).to_json()

    def reportLatestOffset(self) -> OffsetJson | None:
        """Shown as `latestOffset` in the progress of the query, with the lag. It is as of the last
        planning."""
        if not self._latest:
            return None
        lag = offsets_behind(self._planned, self._latest)
        return {**positions_to_json(self._latest), LAG_KEY: lag_to_json(lag)}

    @without_traceback
    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """The tasks of the micro-batch: small ranges share one, large ones may be cut."""
        strict = self._options.fail_on_data_loss
        survey = self._survey
        begun, ended = StreamOffset.from_json(start), StreamOffset.from_json(end)
        self._check_schemas(ended)
        existing, losses = self._metadata.keep_existing(
            ranges_between(begun, ended),
            max_age_ms=0 if survey is None else survey.metadata_age_ms,
        )
        report_losses(losses, fail_on_data_loss=strict)
        lookup = survey or self._metadata
        history = self._tables({each.topic_partition.topic for each in existing})
        of_tables: list[InputPartition] = []
        if history is not None:
            divided = history.divide(existing, earliest_of(existing, lookup))
            of_tables, existing = history.tasks(divided.of_tables), divided.of_logs
        ranges = clip_to_logs(existing, lookup, fail_on_data_loss=strict)
        return [*of_tables, *range_tasks(self._options, self._metadata, ranges)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Runs in a task, in another process than the other methods."""
        from connector.source.record_reader import read_task

        prepare_worker()
        plan = None if self._reading is None else self._reading.plan
        return read_task(self._options, partition.value, plan=plan)

    @without_traceback
    def commit(self, end: OffsetJson) -> None:
        """Commits the offsets to the consumer group, if there is one; Spark keeps them itself.
        Spark calls this for all micro-batches but the last, so `latestOffset` does it, too."""
        self._commit_to_group(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Closes the connections of this process."""
        if self._group_commits is not None:
            self._group_commits.close()
        close_all()

    def _first_place(self) -> StreamOffset:
        """The offset at which a new query begins, by the options."""
        found = self._metadata.find_all(self._options.subscription)
        self._check_topics(found)
        spec = self._options.starting or Everywhere(special=LATEST)
        positions = resolve(
            spec,
            found.partitions,
            self._united(found.topic_ids),
            which="starting",
            fail_on_data_loss=self._options.fail_on_data_loss,
            fall_back_to_latest=self._options.fall_back_to_latest,
        )
        tell_of_tables(self._options, spec, positions)
        query = None if self._options.group_id_prefix is None else uuid4().hex
        return StreamOffset(positions=positions, topic_ids=found.topic_ids, query=query)

    def _commit_to_group(self, processed: StreamOffset) -> None:
        group = self._options.group_id
        if group is None and self._options.group_id_prefix and processed.query:
            group = f"{self._options.group_id_prefix}-{processed.query}"
        if group is None:
            return
        if self._group_commits is None:
            self._group_commits = GroupOffsetCommits(self._options.connection)
        self._group_commits.note(group, processed.positions)

    def _latest_offsets_from(self, begin: StreamOffset) -> dict[TopicPartition, int]:
        """The latest offsets. Where they lie before `begin` it asks again for a while."""
        time.sleep(max(0.0, self._ask_not_before - time.monotonic()))
        self._latest = self._ask_latest()
        asked_at = time.monotonic()
        while patience_ms := self._patience_ms(begin):
            if time.monotonic() >= asked_at + patience_ms / 1000:
                break
            time.sleep(BEHIND_POLL_MS / 1000)
            self._latest = self._ask_latest(max_age_ms=0)
        if self._available_now_target is None:
            return self._latest
        # A partition that was added later is not read. One that was read past its target stays.
        goals = {
            each: max(self._available_now_target.get(each, -1), begin.positions.get(each, -1))
            for each in self._latest
        }
        return {each: min(self._latest[each], goal) for each, goal in goals.items() if goal >= 0}

    def _earliest_offsets(self, needed: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log starts of `needed`. With failOnDataLoss=false also others that are known: with a
        limit the query would step through deleted offsets, one empty micro-batch after another."""
        survey, options = self._survey, self._options
        # Where there is a table, nothing was deleted that it has.
        is_strict = options.fail_on_data_loss or options.tables is not None
        known = {} if survey is None or is_strict else survey.earliest
        lookup = self._united(self._topic_ids)
        return {**known, **lookup.offsets_at(dict.fromkeys(needed, EARLIEST))}

    def _united(self, topic_ids: Mapping[str, UUID]) -> OffsetLookup:
        """Where logs begin, and their tables."""
        history = self._tables(set(topic_ids))
        return self._metadata if history is None else history.united(self._metadata, topic_ids)

    def _tables(self, topics: set[str]) -> "TableHistory | None":
        if self._history is None:
            self._history = new_history(self._options, self._reading, topics)
        elif topics:
            self._history.read_topics(topics)
        return self._history

    def _patience_ms(self, begin: StreamOffset) -> int:
        """How long answers that contradict `begin` are retried before they are believed; 0 when
        none does."""
        if recreated_topics(begin.topic_ids, self._topic_ids):
            return RECREATED_PATIENCE_MS
        return BEHIND_PATIENCE_MS if _is_behind(self._latest, begin) else 0

    def _ask_latest(self, max_age_ms: int | None = None) -> dict[TopicPartition, int]:
        found = self._metadata.find(self._options.subscription, max_age_ms=max_age_ms)
        self._check_topics(found)
        latest: dict[TopicPartition, int] = {}
        self._survey = None
        # An idle source would ask the brokers 40 times a second for what it does not need.
        if self._expects_rows and max_age_ms is None:
            latest, self._survey = self._metadata.survey(found.partitions)
            found = self._metadata.find(self._options.subscription)
            self._check_topics(found)
        self._topic_ids, self._found = found.topic_ids, found
        left = [each for each in found.partitions if each not in latest]
        latest |= self._metadata.offsets_at(dict.fromkeys(left, LATEST))
        return {each: latest[each] for each in found.partitions}

    def _check_topics(self, found: FoundPartitions) -> None:
        """Check that topics which came later, or were created again, fit the columns read."""
        if self._reading is None:
            return
        if self._topic_check is None:
            self._topic_check = TopicCheck(self._options, self._reading)
        self._topic_check.check(found)

    @property
    def _schemas(self) -> Mapping[str, SchemaMark]:
        avro = None if self._reading is None else self._reading.avro
        return {} if avro is None else avro.marks

    def _check_schemas(self, known: StreamOffset) -> None:
        """OptionError where the query has read by another schema, and may not change it."""
        avro = self._options.avro
        if avro is not None and not avro.may_evolve:
            check_same_schemas(known.schemas, self._schemas)

    def _waits_for_more(self, planned: PlannedMicroBatch, limit: ReadLimit) -> bool:
        """Whether a small backlog waits (minOffsetsPerTrigger), up to maxTriggerDelay."""
        minimum = self._options.min_offsets_per_trigger
        if (
            minimum is None
            or isinstance(limit, ReadAllAvailable)
            or self._available_now_target is not None
        ):
            return False
        waited_ms = (time.monotonic() - self._planned_at) * 1000
        return planned.backlog < minimum and waited_ms < self._options.max_trigger_delay_ms

    def _stop_on_sigterm(self) -> None:
        """Makes SIGTERM call `stop`: at a normal end of a query Spark sends SIGTERM and does not
        call `stop`."""
        if self._handles_sigterm or threading.current_thread() is not threading.main_thread():
            return
        self._handles_sigterm = True
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return

        def stop_and_die(signal_number: int, frame: FrameType | None) -> None:
            with contextlib.suppress(OSError):
                self.stop()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

        signal.signal(signal.SIGTERM, stop_and_die)


def _is_behind(latest: Mapping[TopicPartition, int], begin: StreamOffset) -> bool:
    """Whether a partition ends before its position, or is missing."""
    return any(latest.get(each, -1) < position for each, position in begin.positions.items())
