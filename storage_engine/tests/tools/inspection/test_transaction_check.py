"""`headrace dump-log` on files that tell of transactions."""

import json

import pytest

from storage_engine.tests.log.support import open_log, segment_files
from storage_engine.tests.log.transaction_support import abort, commit, write
from storage_engine.tools.cli import main

KEY = (b"k", b"v")


@pytest.fixture
def folder(tmp_path):
    log = open_log(tmp_path)
    write(log, 1, KEY)
    write(log, 2, KEY)
    abort(log, 1, coordinator_epoch=5)
    commit(log, 2, coordinator_epoch=6)
    write(log, 2, KEY)
    log.close()
    return tmp_path


def dump(capsys, *arguments):
    status = main(["dump-log", "--json", *map(str, arguments)])
    return status, json.loads(capsys.readouterr().out)


def test_markers_are_shown_with_type_and_coordinator_epoch(folder, capsys):
    status, (document,) = dump(capsys, *segment_files(folder))
    assert status == 0
    markers = [batch["marker"] for batch in document["batches"] if batch["control"]]
    assert markers == [
        {"type": "abort", "coordinator_epoch": 5},
        {"type": "commit", "coordinator_epoch": 6},
    ]
    assert main(["dump-log", *map(str, segment_files(folder))]) == 0
    assert "abort by coordinator epoch 5" in capsys.readouterr().out


def test_entries_of_a_transaction_index_are_shown(folder, capsys):
    status, (document,) = dump(capsys, *segment_files(folder, ".txnindex"))
    assert status == 0
    (entry,) = document["entries"]
    assert (entry["producer_id"], entry["first_offset"], entry["last_offset"]) == (1, 0, 2)
    assert entry["last_stable_offset"] == 1 and entry["problem"] is None


@pytest.mark.parametrize(
    ("position", "problem"),
    [(1, "version"), (9, "no abort marker of its producer"), (25, "no abort marker"),
     (17, "behind its marker"), (33, "last stable offset")],
)  # fmt: skip
def test_an_entry_that_does_not_fit_the_log_is_told(folder, capsys, position, problem):
    (path,) = segment_files(folder, ".txnindex")
    data = bytearray(path.read_bytes())
    data[position] += 7
    path.write_bytes(data + b"x")
    assert main(["dump-log", str(path)]) == 1
    output, errors = capsys.readouterr()
    assert problem in errors and "(and 2 more)" in errors
    assert "the seal does not agree with the entries" in output
    assert "1 bytes at the end are no whole entry" in output


def test_producers_of_a_snapshot_are_shown(folder, capsys):
    path = segment_files(folder, ".snapshot")[-1]
    status, (document,) = dump(capsys, path)
    assert status == 0
    shown = [
        (each["producer_id"], each["coordinator_epoch"], each["transaction_first_offset"])
        for each in document["producers"]
    ]
    assert shown == [(1, 5, None), (2, 6, 4)]
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["dump-log", str(path)]) == 1
    assert "CRC" in capsys.readouterr().err
