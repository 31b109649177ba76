"""Plans what is read of tables: which of them, in which version, and by which tasks.

A version is kept while it holds what is asked for: a query at the end of its log asks no object
store for anything.
"""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from connector.connections import cluster_for
from connector.errors import ConnectorError, OptionError, in_one_line
from connector.log_once import warn_once
from connector.options.offset_specs import EARLIEST, LATEST
from connector.options.source_options import SourceOptions
from connector.source.data_loss import report_losses
from connector.source.offset_range import OffsetLookup, OffsetRange, total_records
from connector.source.parallelism import known_parallelism
from connector.source.tables.seam import DividedRanges, HeldOffsets, divide
from connector.source.tables.table_rows import SliceTask, history_read, table_errors
from headrace_lake.history.errors import HistoryError
from headrace_lake.history.row_group_index import RowGroupIndex
from headrace_lake.history.slices import RowGroup, plan_slices
from headrace_lake.history.table_version import (
    HistoryTopic,
    TablePlace,
    TableVersion,
    load_version,
)
from headrace_lake.history.times import first_at
from headrace_lake.lake_settings import FORMAT, LOCATION, LakeSettings
from storage_engine.client.admin.topics import describe_topic_configs
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    from connector.source.avro.avro_read import AvroRead
    from connector.source.typed.typed_read import TypedRead

TASK_BYTES = 64 << 20
"""The most that one task reads, before compression, where row groups allow it."""

LEAST_TASK_BYTES = 8 << 20
"""Less does not gain from another task."""

KEPT_S = 300.0
"""How long a version is kept. Files that were put together since then stay for a week."""


class TableHistory:
    """The tables of the topics of a query. It stays in the process in which it was made."""

    def __init__(self, options: SourceOptions, plan: "TypedRead | AvroRead | None") -> None:
        assert options.tables is not None
        self._options, self._tables, self._plan = options, options.tables, plan
        self._topics: set[str] = set()
        self._places: dict[str, TablePlace | None] = {}
        self._loaded: dict[str, _LoadedTable] = {}
        self._renewed: set[str] = set()
        """The topics whose newest versions were loaded since logs were asked for their starts."""

    def read_topics(self, topics: Iterable[str]) -> None:
        """Note all topics that the query reads, of which options must tell the tables apart."""
        self._topics |= set(topics)

    def united(self, lookup: OffsetLookup, topic_ids: Mapping[str, UUID]) -> OffsetLookup:
        """An `OffsetLookup` in which a log begins where its table does."""
        return _UnitedOffsets(self, lookup, topic_ids)

    def divide(
        self, ranges: Iterable[OffsetRange], log_starts: Mapping[TopicPartition, int]
    ) -> DividedRanges:
        """Cut the ranges into those of tables and those of logs, which have just been asked where
        they begin. DataLossError."""
        self.note_new_starts()
        strict = self._options.fail_on_data_loss
        divided = divide(ranges, log_starts, self._held, fail_on_data_loss=strict)
        for topic in dict.fromkeys(each.topic_partition.topic for each in divided.of_tables):
            differences = self._loaded[topic].version.differences
            if strict:
                report_losses(differences, fail_on_data_loss=True)
            warn_once(differences)
        return divided

    def tasks(self, ranges: Iterable[OffsetRange]) -> list[InputPartition]:
        """The tasks that read these ranges of tables."""
        by_topic: dict[str, list[OffsetRange]] = {}
        for each in ranges:
            by_topic.setdefault(each.topic_partition.topic, []).append(each)
        return [
            InputPartition(task)
            for topic, of_topic in by_topic.items()
            for task in self._tasks(topic, of_topic)
        ]

    def note_new_starts(self) -> None:
        """Must be called when logs were asked for their starts: retention may have taken what only
        a newer version has."""
        self._renewed.clear()

    def held(self, tp: TopicPartition, topic_id: UUID | None, up_to: int) -> HeldOffsets | None:
        """The offsets of a partition in the topic's table, by a version that has it up to `up_to`
        if any has; None where options name no table of the topic."""
        place = self._place(tp.topic)
        if place is None:
            return None
        loaded = self._load(tp, topic_id, place, up_to)
        end = loaded.version.ends.get(tp.partition, 0)
        if tp.partition not in loaded.starts:
            with table_errors(tp.topic):
                found = loaded.index.start(loaded.version, tp.partition)
            if found is None:
                return HeldOffsets(end, end)
            loaded.starts[tp.partition] = found
        return HeldOffsets(loaded.starts[tp.partition], end)

    def first_at(self, tp: TopicPartition, timestamp_ms: int, below: int) -> int | None:
        """The first offset below `below` at or after a time, in the table that `held` has found."""
        loaded = self._loaded[tp.topic]
        with table_errors(tp.topic):
            return first_at(loaded.version, loaded.index, tp.partition, timestamp_ms, below)

    def _held(self, wanted: OffsetRange) -> HeldOffsets | None:
        return self.held(wanted.topic_partition, wanted.topic_id, wanted.end_offset)

    def _tasks(self, topic: str, ranges: list[OffsetRange]) -> list[SliceTask]:
        history_read_of = history_read(self._options, topic, self._plan)
        loaded = self._loaded[topic]
        wanted = {
            each.topic_partition.partition: (each.start_offset, each.end_offset) for each in ranges
        }
        lacking = [each.column for each in history_read_of.columns if each.column[:1] != "_"]
        lacking = [each for each in lacking if each not in loaded.version.columns]
        with table_errors(topic):
            if lacking and self._plan is None:
                raise HistoryError(
                    f"the table at {loaded.version.place.location} has no column {lacking[0]}: it "
                    f"does not hold the records of topic '{topic}' as they are"
                )
            groups = loaded.index.groups(loaded.version, wanted)
        slices = plan_slices(
            groups,
            wanted,
            target_bytes=self._target_bytes(groups),
            most_offsets=self._most_offsets(ranges),
        )
        topic_id = ranges[0].topic_id
        assert topic_id is not None
        return [
            SliceTask(topic=topic, topic_id=topic_id, place=loaded.version.place, part=each)
            for each in slices
        ]

    def _target_bytes(self, groups: Iterable[RowGroup]) -> int:
        limit = self._options.max_bytes_per_partition or TASK_BYTES
        share = sum(each.size_bytes for each in groups) // (known_parallelism() or 1)
        return min(limit, max(LEAST_TASK_BYTES, min(TASK_BYTES, share)))

    def _most_offsets(self, ranges: list[OffsetRange]) -> int | None:
        most = self._options.max_records_per_partition
        if self._options.min_partitions is None:
            return most
        share = max(1, total_records(ranges) // self._options.min_partitions)
        return share if most is None else min(most, share)

    def _load(
        self, tp: TopicPartition, topic_id: UUID | None, place: TablePlace, up_to: int
    ) -> "_LoadedTable":
        loaded = self._loaded.get(tp.topic)
        if loaded is not None and loaded.topic_id != topic_id:
            loaded = None
        if loaded is not None and (tp.topic in self._renewed or loaded.holds(tp, up_to)):
            return loaded
        if topic_id is None:
            raise ConnectorError(
                "BAD_TABLE",
                f"the brokers tell no id of topic '{tp.topic}', so whether a table is of it can't "
                "be told; table=none reads the log alone",
            )
        partitions = self._partitions(tp.topic, topic_id)
        with table_errors(tp.topic):
            topic = HistoryTopic(tp.topic, topic_id)
            version = load_version(place, topic, partitions | {tp.partition})
        if loaded is None:
            loaded = _LoadedTable(version, topic_id)
            self._loaded[tp.topic] = loaded
        loaded.renew(version)
        self._renewed.add(tp.topic)
        return loaded

    def _partitions(self, topic: str, topic_id: UUID) -> set[int]:
        """The numbers of the topic's partitions, by metadata that is new: what is remembered may be
        of a topic that was deleted, as its table is."""
        cluster = cluster_for(self._options.connection)
        with in_one_line():
            cluster.refresh([topic])
            found = cluster.topic(topic)
        if found.topic_id != topic_id:
            raise ConnectorError(
                "UNKNOWN_TOPIC_ID",
                f"the topic '{topic}' was deleted and created again: start the query again",
            )
        return set(found.partitions)

    def _place(self, topic: str) -> TablePlace | None:
        if topic not in self._places:
            location = self._tables.location_of(topic, self._topics | {topic})
            if location is None and self._tables.root is not None:
                location = self._below_root(topic, self._tables.root)
            self._places[topic] = (
                None
                if location is None
                else TablePlace(location=location, options=dict(self._tables.store))
            )
        return self._places[topic]

    def _below_root(self, topic: str, root: str) -> str | None:
        """Where the lake with this root has the topic's table, by the settings of the topic."""
        with in_one_line():
            entries = describe_topic_configs(cluster_for(self._options.connection), topic)
        values = {name: entries[name].value for name in (FORMAT, LOCATION) if name in entries}
        settings = {name: value for name, value in values.items() if value}
        if FORMAT not in settings:
            warn_once(
                [
                    f"topic '{topic}' has no {FORMAT}, so its log alone is read: name its table "
                    f"with table.{topic}, if it has one"
                ]
            )
            return None
        if settings[FORMAT] != "delta":
            raise OptionError(
                "BAD_OPTION",
                f"the table of topic '{topic}' is of the format {settings[FORMAT]}, and only Delta "
                "tables are read: leave out table.root",
            )
        servers = self._options.connection.bootstrap_servers
        with in_one_line():
            lake = LakeSettings(bootstrap_servers=servers, root=root)
            return lake.table(topic, settings).location


class _LoadedTable:
    """The version of a table that was loaded last, and what was found out about it."""

    def __init__(self, version: TableVersion, topic_id: UUID) -> None:
        self.version = version
        self.topic_id = topic_id
        self.index = RowGroupIndex()
        self.starts: dict[int, int] = {}
        """By partition; they stay what they are."""
        self._at = time.monotonic()

    def renew(self, version: TableVersion) -> None:
        self.version = version
        self._at = time.monotonic()

    def holds(self, tp: TopicPartition, up_to: int) -> bool:
        is_young = time.monotonic() < self._at + KEPT_S
        return is_young and self.version.ends.get(tp.partition, 0) >= up_to


class _UnitedOffsets:
    """See `TableHistory.united`."""

    def __init__(
        self, history: TableHistory, lookup: OffsetLookup, topic_ids: Mapping[str, UUID]
    ) -> None:
        self._history = history
        self._lookup = lookup
        self._topic_ids = topic_ids

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See `OffsetLookup`."""
        found = self._lookup.offsets_at(timestamps_ms)
        asked = {each: at for each, at in timestamps_ms.items() if at != LATEST}
        of_times = [each for each, at in asked.items() if at != EARLIEST]
        starts = self._lookup.offsets_at(dict.fromkeys(of_times, EARLIEST))
        self._history.note_new_starts()
        for each, at in asked.items():
            log_start = found[each] if at == EARLIEST else starts[each]
            if log_start > 0:
                found[each] = self._with_table(each, at, found[each], log_start)
        return found

    def _with_table(self, tp: TopicPartition, at: int, found: int, log_start: int) -> int:
        held = self._history.held(tp, self._topic_ids.get(tp.topic), log_start)
        if held is None or held.start >= min(held.end, log_start):
            return found
        if at == EARLIEST:
            return held.start
        in_table = self._history.first_at(tp, at, log_start)
        return found if in_table is None else in_table
