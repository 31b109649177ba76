"""Print and check segment files: the record batches of .log files, the entries of .index,
.timeindex and .txnindex files, and the producers of .snapshot files.

Size, CRC and offsets of every batch are checked, and an index is compared with the .log file beside
it. With --verify-index only indexes are checked, also the indexes of a given .log file, and only
wrong entries are printed. The exit status is 1 when something is wrong. The broker may be running
meanwhile; a batch that it is just writing can then look cut off.

Of a typed batch, --deep checks the directory and the CRC of each column. With the topic's schema it
also checks values and statistics, and prints the rows as JSON.

examples:
  headrace dump-log cluster/broker-1/data/flights-0/00000000000000000000.log
  headrace dump-log --deep --json cluster/broker-1/data/flights-0/*.log
  headrace topics describe trips --bootstrap-server 127.0.0.1:9092 --json > trips.json
  headrace dump-log --deep --schema trips.json cluster/broker-1/data/trips-0/*.log
  headrace dump-log --verify-index cluster/broker-1/data/flights-0/*.log
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from storage_engine.core.errors import ConfigError, KafkaError
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.records.record_batch import BatchHeader, Codec
from storage_engine.protocol.typed.damage import column_name
from storage_engine.protocol.typed.typed_batch import is_typed
from storage_engine.tools.arguments import add_json
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError
from storage_engine.tools.inspection.index_verification import verify_indexes
from storage_engine.tools.inspection.segment_check import (
    BatchReport,
    IndexEntryReport,
    base_offset_of,
    check_index,
    check_log,
    entry_document,
    mapped,
    value_name,
)
from storage_engine.tools.inspection.transaction_check import (
    check_transaction_index,
    marker_document,
    snapshot_documents,
)
from storage_engine.tools.inspection.typed_check import TypedCheck
from storage_engine.tools.table import print_json, write_line

_BATCH_LINE = "{:>10}  {:>12}  {:>12}  {:>8}  {:>10}  {:>6}  {:>6}  {:>13}  {:>8}  {:>5}  {:>8}  {}"
_BATCH_HEADING = (
    "POSITION", "BASE OFFSET", "LAST OFFSET", "RECORDS", "BYTES", "EPOCH", "CODEC",
    "MAX TIMESTAMP", "PRODUCER", "SEQ", "KIND", "CHECK",
)  # fmt: skip
_ENTRY_LINE = "{:>10}  {:>12}  {:>13}  {}"
_TRANSACTION_LINE = "{:>10}  {:>12}  {:>12}  {:>12}  {:>12}  {}"
_PRODUCER_LINE = "{:>12}  {:>6}  {:>11}  {:>10}  {:>12}  {:>12}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace dump-log`."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="file of a segment: .log, .index, .timeindex, .txnindex or .snapshot",
    )
    parser.add_argument("--deep", action="store_true", help="print the records of each batch too")
    parser.add_argument(
        "--verify-index",
        action="store_true",
        help="only compare the indexes with their .log files, and print the wrong entries",
    )
    parser.add_argument(
        "--schema",
        type=Path,
        metavar="FILE",
        help="file with what 'headrace topics describe TOPIC --json' prints of a typed topic, or "
        "with the value of its setting headrace.schema",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace dump-log`."""
    if args.verify_index:
        return verify_indexes(args.files, as_json=args.json)
    schema = None if args.schema is None else read_schema(args.schema)
    documents: list[Document] = []
    problems: list[str] = []
    for path in args.files:
        show = _collect(documents, path) if args.json else _print_line
        for report in _reports(path, deep=args.deep, schema=schema, show=show):
            if report.problem is not None:
                problems += [f"{path}: {_place(report)}: {report.problem}"]
    if args.json:
        print_json(documents)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise CommandError(f"{problems[0]}{more}")
    return 0


Show = Callable[[str, Document], None]


def read_schema(path: Path) -> TopicSchema:
    """The schema in a file: a topic's setting, or the description of one topic. CommandError when
    it has none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--schema {path} can't be read: {error}") from None
    try:
        match json.loads(text):
            case [{"configs": {"headrace.schema": {"value": str(value)}}}]:
                text = value
        return TopicSchema.from_json(text)
    except (ValueError, RecursionError, ConfigError) as error:
        raise CommandError(
            f"--schema {path} has no schema: {error}; give the output of 'headrace topics "
            "describe TOPIC --json' for one typed topic"
        ) from None


def _reports(
    path: Path, *, deep: bool, schema: TopicSchema | None, show: Show
) -> Iterator[BatchReport | IndexEntryReport]:
    base_offset = base_offset_of(path)
    with ExitStack() as stack:
        data = stack.enter_context(mapped(path))
        if path.suffix == ".log":
            yield from _log_reports(path, data, base_offset, deep=deep, schema=schema, show=show)
            return
        if path.suffix == ".snapshot":
            _show_producers(path, show)
            return
        log_path = path.with_suffix(".log")
        log = stack.enter_context(mapped(log_path)) if log_path.exists() else None
        if path.suffix == ".txnindex":
            yield from _transaction_reports(path, data, log, show)
            return
        heading = _ENTRY_LINE.format("ENTRY", "LAST OFFSET", value_name(path).upper(), "CHECK")
        show(f"{path}: {len(data)} bytes\n{heading}", {})
        for entry in check_index(path, data, log):
            show(
                _ENTRY_LINE.format(entry.number, entry.offset, entry.value, entry.problem or "ok"),
                entry_document(path, entry),
            )
            yield entry


def _log_reports(
    path: Path,
    data: memoryview,
    base_offset: int,
    *,
    deep: bool,
    schema: TopicSchema | None,
    show: Show,
) -> Iterator[BatchReport]:
    batches = records = 0
    heading = _BATCH_LINE.format(*_BATCH_HEADING)
    show(f"{path}: {len(data)} bytes\n{heading}", {})
    for report in check_log(data, base_offset):
        header = report.header
        if header is None:
            show(
                f"{report.position:>10}  {report.problem}",
                {"position": report.position, "problem": report.problem},
            )
            yield report
            continue
        batches += 1
        records += header.records_count
        # A copy: a view that outlives this would keep the file mapped.
        batch = memoryview(bytes(data[report.position : report.position + header.size_in_bytes]))
        content = _Content({}, ())
        if deep and report.problem is None:
            content = _content(batch, header, schema)
            report = replace(report, problem=content.problem)
        document = _batch_document(report, header) | content.document
        kind = _kind(header)
        marker = {}
        if header.is_control and report.problem is None:
            marker = marker_document(batch, header)
            document["marker"] = marker
            kind = str(marker["type"] or kind)
        lines = [_batch_line(report, header, kind)]
        if "coordinator_epoch" in marker:
            epoch = marker["coordinator_epoch"]
            lines.append(f"{header.base_offset:>24}  {kind} by coordinator epoch {epoch}")
        lines += content.lines
        show("\n".join(lines), document)
        yield report
    show(f"{batches} batches, {records} records", {})


class _Content(NamedTuple):
    """The part of a batch that --deep shows."""

    document: Document
    lines: Sequence[str]
    problem: str | None = None


def _content(batch: memoryview, header: BatchHeader, schema: TopicSchema | None) -> _Content:
    if not is_typed(header):
        from storage_engine.tools.record_text import describe_records

        described = describe_records(batch, header)
        return _Content({"records": described}, [_record_line(record) for record in described])
    try:
        check = TypedCheck(header, batch, schema)
    except KafkaError as error:
        return _Content({}, (), str(error))
    columns = check.columns()
    document = check.document() | {"columns": [*columns.values()]}
    lines = [_column_line(number, column) for number, column in columns.items()]
    problem = check.problem()
    if problem is None:
        records = check.records()
        if records is None:
            lines.append(f"{'':10}  rows are shown with --schema FILE")
        else:
            document["records"] = records
            lines += [_record_line(record) for record in records]
    return _Content(document, lines, problem)


def _column_line(number: int, column: Document) -> str:
    name = f"{column['name']} {column['type']}" if "name" in column else column_name(number)
    bounds = f"  {column['minimum']!r} to {column['maximum']!r}" if "minimum" in column else ""
    return (
        f"{'':10}  {name}: {column['stored_bytes']} of {column['raw_bytes']} bytes, "
        f"{column['codec']}, {column['encoding']}, {column['nulls']} nulls{bounds}"
    )


def _transaction_reports(
    path: Path, data: memoryview, log: memoryview | None, show: Show
) -> Iterator[IndexEntryReport]:
    heading = _TRANSACTION_LINE.format(
        "ENTRY", "PRODUCER", "FIRST OFFSET", "LAST OFFSET", "LAST STABLE", "CHECK"
    )
    show(f"{path}: {len(data)} bytes\n{heading}", {})
    for report, aborted in check_transaction_index(data, log):
        fields = ("-",) * 4 if aborted is None else aborted
        document = {} if aborted is None else aborted._asdict()
        show(
            _TRANSACTION_LINE.format(report.number, *fields, report.problem or "ok"),
            {"entry": report.number, **document, "problem": report.problem},
        )
        yield report


def _show_producers(path: Path, show: Show) -> None:
    heading = _PRODUCER_LINE.format(
        "PRODUCER", "EPOCH", "COORDINATOR", "LAST SEQ", "LAST OFFSET", "OPEN SINCE"
    )
    show(f"{path}\n{heading}", {})
    for document in snapshot_documents(path):
        fields = {name: "-" if value is None else value for name, value in document.items()}
        show(
            _PRODUCER_LINE.format(
                fields["producer_id"],
                fields["producer_epoch"],
                fields["coordinator_epoch"],
                fields["last_sequence"],
                fields["last_offset"],
                fields["transaction_first_offset"],
            ),
            document,
        )


def _batch_line(report: BatchReport, header: BatchHeader, kind: str) -> str:
    return _BATCH_LINE.format(
        report.position,
        header.base_offset,
        header.last_offset,
        header.records_count,
        header.size_in_bytes,
        header.partition_leader_epoch,
        _codec_name(header),
        header.max_timestamp,
        _producer(header),
        header.base_sequence if header.base_sequence >= 0 else "-",
        kind,
        report.problem or "ok",
    )


def _batch_document(report: BatchReport, header: BatchHeader) -> Document:
    return {
        "position": report.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count,
        "size_bytes": header.size_in_bytes,
        "leader_epoch": header.partition_leader_epoch,
        "codec": _codec_name(header),
        "timestamp_type": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
        "problem": report.problem,
    }


def _record_line(record: Document) -> str:
    """Return offset, time, key and value in a line; a dash for null."""
    parts = [f"{record['offset']:>12}", str(record["timestamp"])]
    for name in ("key", "value"):
        encoded = record.get(f"{name}_base64")
        text = record[name]
        parts.append(
            f"{name}: " + ("-" if text is None and encoded is None else repr(text or encoded))
        )
    return f"{'':10}  " + "  ".join(parts)


def _codec_name(header: BatchHeader) -> str:
    try:
        return Codec(header.compression).name.lower()
    except ValueError:
        return f"codec {header.compression}"


def _producer(header: BatchHeader) -> str:
    return f"{header.producer_id}/{header.producer_epoch}" if header.producer_id >= 0 else "-"


def _kind(header: BatchHeader) -> str:
    if header.is_control:
        return "control"
    if is_typed(header):
        return "typed/tx" if header.is_transactional else "typed"
    return "transact" if header.is_transactional else "data"


def _place(report: BatchReport | IndexEntryReport) -> str:
    if isinstance(report, BatchReport):
        return f"batch at byte {report.position}"
    return f"entry {report.number}"


def _print_line(line: str, document: Document) -> None:
    write_line(line)


def _collect(documents: list[Document], path: Path) -> Show:
    content: list[Document] = []
    name = {".log": "batches", ".snapshot": "producers"}.get(path.suffix, "entries")
    documents.append({"file": str(path), name: content})

    def show(line: str, document: Document) -> None:
        if document:
            content.append(document)

    return show
