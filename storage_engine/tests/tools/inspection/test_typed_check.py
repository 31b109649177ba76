"""`headrace dump-log` on segments of typed topics: directory, columns, statistics and rows."""

import json
from pathlib import Path

import pytest
from crc32c import crc32c

from storage_engine.client.fetching.replica_reader import ReplicaBatch
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    patch,
    read_header,
    seal,
)
from storage_engine.protocol.typed.directory import encode_directory
from storage_engine.protocol.typed.typed_batch import directory_of
from storage_engine.tests.log.typed_support import SCHEMA, TOPIC_ID, typed_batch
from storage_engine.tests.tools.inspection.segments import dump
from storage_engine.tools.commands.dump_log import read_schema
from storage_engine.tools.inspection.replica_comparison import compare


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(SCHEMA.to_json())
    return path


def _batches() -> list[bytearray]:
    batches = [
        typed_batch([("a", "first"), ("b", "second")], compression="lz4"),
        typed_batch([("a", None), ("c", "third")], version=2, timestamps_ms=[7, 9]),
    ]
    for number, batch in enumerate(batches):
        patch(batch, 0, base_offset=2 * number, leader_epoch=4)
    return batches


def _segment(tmp_path: Path, batches: list[bytearray]) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(batches))
    return path


def _column_at(batch: bytearray, name: str, version: int = 1) -> int:
    directory = directory_of(read_header(batch), batch)
    entry = directory.column(SCHEMA.version(version).column(name).column_id)
    return HEADER_BYTES + directory.size + entry.place


def _with_entries(batch: bytearray, change) -> bytearray:
    """The batch with other entries, and right CRCs."""
    header = read_header(batch)
    directory = directory_of(header, batch)
    batch[HEADER_BYTES : HEADER_BYTES + directory.size] = encode_directory(
        topic_id=directory.topic_id,
        schema_version=directory.schema_version,
        rows=directory.rows,
        entries=[change(entry) for entry in directory.entries],
    )
    seal(batch, 0, header)
    return batch


def test_deep_prints_the_rows_as_json(
    tmp_path: Path, schema_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = _segment(tmp_path, _batches())
    assert dump("--deep", "--json", "--schema", schema_file, segment) == 0
    (log,) = json.loads(capsys.readouterr().out)
    first, second = log["batches"]
    assert (first["topic_id"], first["schema_version"]) == (str(TOPIC_ID), 1)
    assert (second["schema_version"], second["leader_epoch"]) == (2, 4)
    by_name = {column.get("name"): column for column in first["columns"]}
    assert (by_name["name"]["minimum"], by_name["name"]["maximum"]) == ("first", "second")
    assert by_name["size"]["type"] == "INT"
    rows = [record for batch in log["batches"] for record in batch["records"]]
    assert [(row["offset"], row["key"], row["timestamp"]) for row in rows] == [
        (0, "a", 1000),
        (1, "b", 1000),
        (2, "a", 7),
        (3, "c", 9),
    ]
    assert json.loads(rows[1]["value"]) == {"id": "b", "name": "second", "size": 6, "extra": None}
    assert rows[2]["value"] is None


def test_without_the_schema_the_columns_are_shown_by_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = _segment(tmp_path, _batches())
    assert dump("--deep", segment) == 0
    output = capsys.readouterr().out
    assert "column 2: " in output
    assert "the column of tombstones: " in output
    assert "rows are shown with --schema FILE" in output
    assert "2 batches, 4 records" in output


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (lambda batch: HEADER_BYTES + 14, "the directory of a typed batch is damaged"),
        (lambda batch: _column_at(batch, "name") + 9, "column 2 is damaged"),
        (lambda batch: 30, "its header is damaged"),
    ],
)
def test_a_flipped_bit_is_told_with_the_part_that_has_it(
    tmp_path: Path, place, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = _batches()
    sound = bytes(batches[0])
    batches[0][place(batches[0])] ^= 4
    assert dump(_segment(tmp_path, batches)) == 1
    assert f"batch at byte 0: CRC does not match: {named}" in capsys.readouterr().err
    told = compare(_Replica(sound), _Replica(bytes(batches[0])), is_compacted=False)
    assert told.difference is not None
    assert f"its CRC does not match its contents: {named}" in told.difference.what


def test_statistics_that_leave_out_a_value_are_found(
    tmp_path: Path, schema_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A filter would skip the batch, and its rows would be missed for ever."""
    name_id = SCHEMA.version(1).column("name").column_id
    batches = _batches()
    _with_entries(
        batches[0],
        lambda entry: entry._replace(maximum=b"quayzz") if entry.column_id == name_id else entry,
    )
    segment = _segment(tmp_path, batches)
    assert dump(segment) == 0
    assert dump("--deep", "--schema", schema_file, segment) == 1
    told = capsys.readouterr().err
    assert "column 'name' has the value 'second', which its statistics leave out" in told


def test_a_column_whose_own_crc_is_wrong_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = _batches()
    _with_entries(batches[0], lambda entry: entry._replace(crc=crc32c(b"other")))
    assert dump("--deep", _segment(tmp_path, batches)) == 1
    assert "the CRC of column 1 does not match" in capsys.readouterr().err


def test_a_file_that_is_no_schema_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = _segment(tmp_path, _batches())
    assert dump("--schema", tmp_path / "absent.json", segment) == 1
    assert "absent.json can't be read" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text("id BIGINT")
    assert dump("--schema", tmp_path / "bad.json", segment) == 1
    told = capsys.readouterr().err
    assert "bad.json has no schema: " in told and told.count("\n") == 1


def test_the_description_of_a_topic_tells_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "trips.json"
    setting = {"value": SCHEMA.to_json(), "source": "topic"}
    path.write_text(json.dumps([{"name": "trips", "configs": {"headrace.schema": setting}}]))
    assert read_schema(path) == SCHEMA


class _Replica:
    start_offset = 0

    def __init__(self, *batches: bytes) -> None:
        self._batches = [ReplicaBatch(read_header(batch), batch) for batch in batches]

    def next(self) -> ReplicaBatch | None:
        return self._batches.pop(0) if self._batches else None
