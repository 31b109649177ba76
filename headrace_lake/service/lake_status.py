"""How far tables are, and why they stand still, found out from tables and brokers.

No instance is asked: whether a table may be written follows from what it and the brokers say, by
the same decisions. So the status is true also where none runs, or one hangs.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import DeltaTable

from headrace_lake.delta.store import TableStore, location_url
from headrace_lake.delta.table import LakeTable, LakeTopic
from headrace_lake.lake_settings import LakeSettings, TableSettings
from headrace_lake.protocol.progress import LakeProgress
from headrace_lake.protocol.resuming import resume
from headrace_lake.protocol.stops import TableStoppedError
from headrace_lake.reading.rows import rows_of
from headrace_lake.reading.waiting import oldest_waiting_ms
from headrace_lake.service.brokers import Brokers
from headrace_lake.service.discovery import Discovery
from headrace_lake.service.table_writer import log_answers, shape_of
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.core.errors import ConfigError, HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.document import Document

CURRENT, BEHIND, EMPTY = "current", "behind", "empty"
STOPPED, UNREACHABLE = "stopped", "unreachable"

CLIENT_ID = "headrace-lake-status"
DEADLINE_MS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePartitionReport:
    """One partition."""

    partition: int
    offset: int
    """Where the table goes on."""
    end_offset: int
    """The end of the records that can be read committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """One table; None where it could not be found out."""

    topic: str
    location: str | None
    state: str
    line: str = ""
    """Why it stands still, with the remedy."""
    partitions: tuple[LakePartitionReport, ...] = ()
    lag_s: float | None = None
    """How long the oldest record waits that is not in the table; 0 where none does."""
    version: int | None = None
    rows: int | None = None
    files: int | None = None
    file_bytes: int | None = None
    last_commit: str | None = None
    """ISO 8601, in UTC."""

    @property
    def lag_records(self) -> int | None:
        if not self.partitions:
            return None
        return sum(max(0, each.end_offset - each.offset) for each in self.partitions)

    def document(self) -> Document:
        """All of it, for JSON and the table."""
        return {
            "topic": self.topic,
            "state": self.state,
            "line": self.line,
            "lag_records": self.lag_records,
            "lag_s": self.lag_s,
            "rows": self.rows,
            "files": self.files,
            "file_bytes": self.file_bytes,
            "version": self.version,
            "last_commit": self.last_commit,
            "location": self.location,
            "partitions": [
                {
                    "partition": each.partition,
                    "offset": each.offset,
                    "end_offset": each.end_offset,
                }
                for each in self.partitions
            ],
        }


def table_reports(settings: LakeSettings, security: ClientSecurity | None) -> list[TableReport]:
    """A report of each table that topics or the lake's file name. KafkaError and
    DeadlineExceededError where no broker answers."""
    with Cluster(
        settings.bootstrap_servers,
        client_id=CLIENT_ID,
        deadline_ms=DEADLINE_MS,
        security=security,
    ) as cluster:
        plan = Discovery(settings, cluster).look(()).plan
        reports = [
            TableReport(topic=topic, location=None, state=STOPPED, line=line)
            for topic, line in plan.refused.items()
        ]
        reports += [_report(cluster, settings, table) for table in plan.tables.values()]
    return sorted(reports, key=lambda each: each.topic)


def _report(cluster: Cluster, settings: LakeSettings, table: TableSettings) -> TableReport:
    report = TableReport(topic=table.topic, location=table.location, state=UNREACHABLE)
    try:
        options = dict(settings.store)
        if not DeltaTable.is_deltatable(location_url(table.location), options):
            return _empty(cluster, report)
        # Not before, as it makes the folder.
        return _of_table(cluster, TableStore(table.location, options), table, report)
    except (TableStoppedError, ConfigError) as error:
        return replace(report, state=STOPPED, line=str(error))
    except (HeadraceError, OSError) as error:
        return replace(report, line=" ".join(str(error).split()))


def _empty(cluster: Cluster, report: TableReport) -> TableReport:
    partitions = _partitions(cluster, report.topic)
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    progress = {tp.partition: LakeProgress(end_offset=at) for tp, at in starts.items()}
    rows = rows_of(cluster, report.topic)
    return _with_lag(cluster, replace(report, state=EMPTY), progress, rows.typed is not None)


def _of_table(
    cluster: Cluster, store: TableStore, settings: TableSettings, report: TableReport
) -> TableReport:
    rows = rows_of(cluster, report.topic)
    shape = shape_of(rows, settings.partition_by)
    topic = LakeTopic(name=rows.topic, topic_id=rows.topic_id)
    try:
        table = LakeTable.open(store, topic, shape)
    except TableStoppedError as error:
        handle = DeltaTable(store.url, storage_options=dict(store.options))
        return replace(_with_files(report, handle), state=STOPPED, line=str(error))
    report = _with_files(report, table.handle)
    partitions = frozenset(_partitions(cluster, report.topic))
    progress = table.progress(tp.partition for tp in partitions)
    answers = log_answers(Brokers(cluster), partitions, progress)
    starts = {
        tp.partition: LakeProgress(end_offset=answer.start_offset) for tp, answer in answers.items()
    }
    report = _with_lag(cluster, report, {**starts, **progress}, rows.typed is not None)
    try:
        for tp, answer in answers.items():
            resume(
                str(tp),
                rows.topic_id,
                progress.get(tp.partition),
                answer,
                accepts_gaps=table.accepts_gaps,
            )
    except TableStoppedError as error:
        return replace(report, state=STOPPED, line=str(error))
    return replace(report, state=BEHIND if report.lag_records else CURRENT)


def _partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for n in sorted(cluster.topic(topic).partitions)]


def _with_files(report: TableReport, handle: DeltaTable) -> TableReport:
    actions = pa.table(handle.get_add_actions(flatten=True))
    (last,) = handle.history(1)
    committed = datetime.fromtimestamp(int(last["timestamp"]) / 1000, UTC)
    return replace(
        report,
        version=handle.version(),
        rows=sum(int(each or 0) for each in actions["num_records"].to_pylist()),
        files=actions.num_rows,
        file_bytes=sum(actions["size_bytes"].to_pylist()),
        last_commit=committed.isoformat(timespec="seconds"),
    )


def _with_lag(
    cluster: Cluster,
    report: TableReport,
    progress: Mapping[int, LakeProgress],
    is_typed: bool,
) -> TableReport:
    places = {
        TopicPartition(report.topic, number): each.end_offset for number, each in progress.items()
    }
    ends = cluster.list_offsets(dict.fromkeys(places, LATEST), isolation="read_committed")
    missing = {tp: (at, ends[tp]) for tp, at in places.items() if at < ends[tp]}
    since_ms = oldest_waiting_ms(cluster, missing, is_typed=is_typed)
    waited_s = 0.0 if since_ms is None else max(0.0, time.time() - since_ms / 1000)
    return replace(
        report,
        lag_s=round(waited_s, 1),
        partitions=tuple(
            LakePartitionReport(partition=tp.partition, offset=at, end_offset=ends[tp])
            for tp, at in sorted(places.items())
        ),
    )
