"""The directory of an export.

    _export.json                                         what is exported, as splits; written first
    000003-orders-0-00000000000000500000.parquet         split 3, whole
    .000004-orders-0-00000000000000700000.parquet.part   split 4, being written, or left by a kill

A file has its name only when it is whole and on the disk, so a file that has its name need not be
written again. Names that begin with '_' or '.' are not data, for Spark and Arrow either. Source:
R-CLI5.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from storage_engine.client.fetching.bulk_reader import Split
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError

PLAN = "_export.json"
_VERSION = 1

ROW_GROUP_BYTES = 64 << 20
"""The size of a row group in Arrow data, before it is written: large enough for readers to skip by,
and small enough to hold in memory."""

_TOPIC_CHARACTERS = 120
"""File names have at most 255 characters, and topic names 249; the rest is the split's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """The arguments of an export. A command with the same arguments continues it."""

    topics: tuple[str, ...]
    since_ms: int | None
    until_ms: int | None
    isolation: str
    columns: tuple[str, ...] | None = None
    where: str | None = None


class ExportFolder:
    """The directory of one export. Only one process at a time may use it: see `directory_lock`."""

    def __init__(self, directory: Path, request: ExportRequest, splits: list[Split]) -> None:
        self.directory = directory
        self.request = request
        self.splits = splits

    @classmethod
    def open(
        cls, directory: Path, request: ExportRequest, plan: Callable[[], list[Split]]
    ) -> "ExportFolder":
        """The export that is there, or a new one, for which `plan` is asked. CommandError where the
        folder has another export, or something else in it."""
        stored = directory / PLAN
        try:
            text = stored.read_text(encoding="utf-8")
        except FileNotFoundError:
            if any(not path.name.startswith(".") for path in directory.iterdir()):
                raise CommandError(
                    f"'{directory}' has files in it, but no export: choose another folder"
                ) from None
            folder = cls(directory, request, plan())
            text = json.dumps(_document(request, folder.splits), indent=2) + "\n"
            _write_whole(stored, lambda file: file.write(text.encode()))
            return folder
        begun, splits = _parsed(stored, text)
        if begun != request:
            raise CommandError(
                f"'{directory}' has another export, {_filled_in(begun)}: give the same options "
                "to continue it, or choose another folder"
            )
        return cls(directory, request, splits)

    def path_of(self, number: int) -> Path:
        """The path of a split's file once it is complete."""
        split = self.splits[number]
        topic = split.tp.topic[:_TOPIC_CHARACTERS]
        name = f"{number:06d}-{topic}-{split.tp.partition}-{split.start_offset:020d}.parquet"
        return self.directory / name

    def remove_leftovers(self) -> None:
        """Removes files that a killed process has left unfinished."""
        for path in self.directory.glob(".*.part"):
            path.unlink()

    def records_of(self, number: int) -> int | None:
        """The number of records in a split's file; None while it is not complete."""
        try:
            return int(pq.read_metadata(self.path_of(number)).num_rows)
        except FileNotFoundError:
            return None
        except pa.ArrowInvalid:
            # Somebody has damaged it since: to be written again.
            return None

    def write(self, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """A split, whole or not at all; how many records it has."""
        records = 0

        def fill(file: BinaryIO) -> None:
            nonlocal records
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for table in _row_groups(schema, batches):
                    writer.write_table(table)
                    records += table.num_rows

        _write_whole(self.path_of(number), fill)
        return records


def _row_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(gathered, schema)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered, schema)


def _write_whole(path: Path, fill: Callable[[BinaryIO], int | None]) -> None:
    """Writes the file under another name until all of it is on the disk."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _document(request: ExportRequest, splits: Iterable[Split]) -> Document:
    return {
        "version": _VERSION,
        "request": asdict(request),
        "splits": [
            {
                **split.tp._asdict(),
                "topic_id": str(split.topic_id),
                "start_offset": split.start_offset,
                "end_offset": split.end_offset,
                "schema_version": split.schema_version,
            }
            for split in splits
        ],
    }


def _parsed(path: Path, text: str) -> tuple[ExportRequest, list[Split]]:
    try:
        document = json.loads(text)
        if document["version"] != _VERSION:
            raise CommandError(
                f"'{path}' is of version {document['version']}, this headrace reads {_VERSION}: "
                "choose another folder"
            )
        asked = document["request"]
        names = asked.get("columns")
        columns = None if names is None else tuple(names)
        request = ExportRequest(**{**asked, "topics": tuple(asked["topics"]), "columns": columns})
        splits = [
            Split(
                tp=TopicPartition(row["topic"], row["partition"]),
                topic_id=UUID(row["topic_id"]),
                start_offset=row["start_offset"],
                end_offset=row["end_offset"],
                schema_version=row.get("schema_version", 0),
            )
            for row in document["splits"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CommandError(
            f"'{path}' can't be read as an export's: choose another folder"
        ) from None
    return request, splits


def _filled_in(request: ExportRequest) -> str:
    since = "" if request.since_ms is None else f" since {request.since_ms}"
    until = "" if request.until_ms is None else f" until {request.until_ms}"
    columns = "" if request.columns is None else f", columns {', '.join(request.columns)}"
    where = "" if request.where is None else f", where {request.where}"
    return f"of {', '.join(request.topics)}{since}{until}, {request.isolation}{columns}{where}"
