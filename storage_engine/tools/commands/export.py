"""Copy the present records of topics into Parquet files, in a directory of their own.

The files have the columns topic, partition, offset, timestamp, timestampType, key, value and
headers. The files of a typed topic have its columns, with their types, or the columns that
--columns names, which may include _topic, _partition, _offset, _timestamp, _headers and _deleted.

The range of offsets to export is fixed when the export begins. To continue an export that was
killed or has failed, repeat the command: finished files are kept and an unfinished file is written
again, so that the export holds each record once. Records of aborted transactions are left out.

examples:
  headrace export orders --bootstrap-server 127.0.0.1:9092 --dir ./orders
  headrace export orders clicks --bootstrap-server 127.0.0.1:9092 --dir ./january \\
      --since 2026-01-01 --until 2026-02-01
  headrace export trips --bootstrap-server 127.0.0.1:9092 --dir ./fares \\
      --columns id,fare,_offset --where 'fare > 10'
"""

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from storage_engine.client.cluster import ISOLATION_LEVELS
from storage_engine.client.fetching.bulk_reader import (
    SPLIT_OFFSETS,
    BulkReader,
    RecordsGoneError,
    Split,
)
from storage_engine.tools.arguments import (
    TIME_HELP,
    add_bootstrap_server,
    add_columns,
    add_json,
    positive_integer,
    time_ms,
)
from storage_engine.tools.client_settings import file_settings
from storage_engine.tools.errors import CommandError
from storage_engine.tools.export_folder import ExportFolder, ExportRequest
from storage_engine.tools.local.directory_lock import directory_lock
from storage_engine.tools.table import print_json, report_line, write_line

PROGRESS_S = 5.0
"""The interval between two lines of progress."""


@dataclass(slots=True, kw_only=True)
class ExportOutcome:
    """The progress of an export."""

    directory: str
    splits: int
    kept: int = 0
    """The number of splits that were there before."""
    written: int = 0
    records: int = 0
    """The number of records in these files."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace export`."""
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="topic to export")
    add_bootstrap_server(parser)
    parser.add_argument(
        "--dir",
        required=True,
        type=Path,
        metavar="DIR",
        help="directory for the files; it must be empty, not exist yet, or hold this same export",
    )
    parser.add_argument(
        "--since",
        type=time_ms,
        metavar="TIME",
        help="begin each partition at its first record of that time or later (default: its oldest "
        f"record); {TIME_HELP}",
    )
    parser.add_argument(
        "--until",
        type=time_ms,
        metavar="TIME",
        help="end each partition before its first record of that time or later (default: after its "
        "newest record)",
    )
    parser.add_argument(
        "--split-offsets",
        type=positive_integer,
        default=SPLIT_OFFSETS,
        metavar="N",
        help=f"the most offsets in one file (default {SPLIT_OFFSETS}); ignored when an export is "
        "continued",
    )
    parser.add_argument(
        "--isolation",
        choices=list(ISOLATION_LEVELS),
        default="read_committed",
        help="read_uncommitted includes records of open and aborted transactions "
        "(default: read_committed)",
    )
    add_columns(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace export`."""
    request = ExportRequest(
        topics=tuple(sorted(set(args.topics))),
        since_ms=args.since,
        until_ms=args.until,
        isolation=args.isolation,
        columns=args.columns,
        where=args.where,
    )
    config = {
        **file_settings(args.command_config),
        "bootstrap.servers": args.bootstrap_server,
        "isolation.level": args.isolation,
    }
    with BulkReader(config) as reader:
        args.dir.mkdir(parents=True, exist_ok=True)
        with directory_lock(args.dir, timeout_s=0):
            folder = ExportFolder.open(
                args.dir,
                request,
                lambda: _plan(reader, request, args.split_offsets),
            )
            outcome = export(reader, folder)
    if args.json:
        print_json(asdict(outcome))
    else:
        kept = f", {outcome.kept} of them kept" if outcome.kept else ""
        write_line(
            f"{outcome.records} records in {outcome.splits} files{kept}, in '{outcome.directory}'"
        )
    return 0


def _plan(reader: BulkReader, request: ExportRequest, split_offsets: int) -> list[Split]:
    splits = reader.splits(
        request.topics,
        since_ms=request.since_ms,
        until_ms=request.until_ms,
        split_offsets=split_offsets,
    )
    for split in {split.tp.topic: split for split in splits}.values():
        # ConfigError before there is a plan.
        reader.arrow_schema(split, columns=request.columns, where=request.where)
    return splits


def export(reader: BulkReader, folder: ExportFolder) -> ExportOutcome:
    """Write the splits that are not there yet."""
    outcome = ExportOutcome(directory=str(folder.directory), splits=len(folder.splits))
    folder.remove_leftovers()
    columns, where = folder.request.columns, folder.request.where
    told_at_s = time.monotonic()
    for number, split in enumerate(folder.splits):
        records = folder.records_of(number)
        if records is None:
            try:
                records = folder.write(
                    number,
                    reader.arrow_schema(split, columns=columns, where=where),
                    reader.read(split, columns=columns, where=where),
                )
            except RecordsGoneError as error:
                raise CommandError(f"{error}; begin another export, in another folder") from None
            outcome.written += 1
        else:
            outcome.kept += 1
        outcome.records += records
        if time.monotonic() - told_at_s >= PROGRESS_S:
            told_at_s = time.monotonic()
            report_line(f"{number + 1} of {outcome.splits} files, {outcome.records} records")
    return outcome
