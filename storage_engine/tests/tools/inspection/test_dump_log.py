"""`headrace dump-log`: what it shows of segment files."""

import json

import pytest

from storage_engine.tests.tools.inspection.segments import PADDING, Segment, dump


def test_an_intact_segment_shows_its_batches_and_entries(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dump(segment.log, segment.index, segment.timeindex) == 0
    output = capsys.readouterr().out
    assert "3 batches, 6 records" in output
    assert "zstd" in output
    assert output.count(" ok\n") == 3 + 2 + 2


def test_json_has_every_batch_with_its_fields(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dump("--json", segment.log, segment.index) == 0
    log, index = json.loads(capsys.readouterr().out)
    assert log["file"] == str(segment.log)
    assert [batch["base_offset"] for batch in log["batches"]] == [100, 102, 103]
    assert [batch["records_count"] for batch in log["batches"]] == [2, 1, 3]
    assert log["batches"][1]["codec"] == "lz4"
    assert log["batches"][2]["leader_epoch"] == 7
    assert {batch["problem"] for batch in log["batches"]} == {None}
    assert index["entries"][0] == {
        "entry": 0,
        "last_offset": 102,
        "position": segment.positions[1],
        "problem": None,
    }


def test_deep_shows_the_records_and_bytes_that_are_no_text_as_base64(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dump("--json", "--deep", segment.log) == 0
    (log,) = json.loads(capsys.readouterr().out)
    records = [record for batch in log["batches"] for record in batch["records"]]
    assert [record["value"] for record in records] == [
        f"value-{i}{PADDING.decode()}" for i in range(100, 106)
    ]
    assert [record["offset"] for record in records] == list(range(100, 106))
    assert records[0]["key"] == "key"
    assert records[1]["key"] is None and "key_base64" not in records[1]
    assert records[5]["key"] is None and records[5]["key_base64"] == "/w=="
    assert dump("--deep", segment.log) == 0
    assert "'value-105-" in capsys.readouterr().out
