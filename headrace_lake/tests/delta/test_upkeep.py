"""Upkeep changes no row, and removes no file that a commit may name."""

import deltalake
import pyarrow as pa
import pytest

from headrace_lake.delta.batch_commits import commit_batch
from headrace_lake.delta.compaction import compact
from headrace_lake.delta.data_files import RowFiles
from headrace_lake.delta.upkeep import TableUpkeep, UpkeepSettings, last_checkpoint
from headrace_lake.protocol.attempts import AttemptDecision
from headrace_lake.protocol.columns import typed_shape
from headrace_lake.tests.lake_tables import (
    EXACT,
    PLAIN,
    as_batch,
    exact_rows,
    opened,
    plain_rows,
    schema_of_types,
    write,
)

NO_WAIT = UpkeepSettings(target_bytes=10**6, safe_hours=0)


def read(folder) -> pa.Table:
    return deltalake.DeltaTable(str(folder)).to_pyarrow_table().sort_by("_offset")


def test_files_are_put_together_while_a_writer_commits(tmp_path):
    table = opened(tmp_path, EXACT)
    for first in range(0, 40, 4):
        write(table, exact_rows(first, first + 4), first or None, first + 4, shape=EXACT)
    before = read(tmp_path)
    batch = as_batch(table, 40, 44)
    files = RowFiles(table.store, EXACT.row_schema, order=table.version + 1)
    files.write(exact_rows(40, 44))
    result = compact(opened(tmp_path, EXACT), 10**6, whole_tail=True)
    assert (result.files_before, result.files_after) == (10, 1)
    assert read(tmp_path).equals(before)
    assert commit_batch(table, batch, files.finish()) is AttemptDecision.COMMITTED
    assert read(tmp_path).num_rows == 44
    changes = deltalake.DeltaTable(str(tmp_path)).history()
    assert len(changes) == 14


def test_files_from_before_a_column_was_added_are_put_together_with_later_ones(tmp_path):
    table = opened(tmp_path)
    write(table, plain_rows(0, 3), None, 3)
    wider = typed_shape("trips", schema_of_types({"id": "BIGINT", "text": "STRING", "x": "DATE"}))
    table.grow(wider)
    rows = plain_rows(3, 6).append_column("x", pa.array([1, 2, 3], pa.int32()).cast(pa.date32()))
    write(table, rows.select(wider.row_schema.names), 3, 6, shape=wider)
    before = read(tmp_path)
    assert compact(opened(tmp_path, wider), 10**6, whole_tail=True).files_after == 1
    assert read(tmp_path).equals(before)


def test_a_rewrite_of_files_that_others_took_is_dropped(tmp_path, monkeypatch):
    table = opened(tmp_path)
    for first in range(0, 6, 3):
        write(table, plain_rows(first, first + 3), first or None, first + 3)
    own = opened(tmp_path)
    replace = own.replace

    def replace_late(*arguments):
        deltalake.DeltaTable(str(tmp_path)).optimize.compact()
        return replace(*arguments)

    monkeypatch.setattr(own, "replace", replace_late)
    assert compact(own, 10**6, whole_tail=True).files_after == 0
    assert read(tmp_path)["_offset"].to_pylist() == list(range(6))


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_sweep_takes_what_no_commit_names_and_its_batch_is_written_anew(tmp_path, is_committed):
    table = opened(tmp_path)
    write(table, plain_rows(0, 3), None, 3)
    (tmp_path / "others.parquet").write_bytes(b"x")
    batch = as_batch(table, 3, 6)
    files = RowFiles(table.store, PLAIN.row_schema, order=table.version + 1)
    files.write(plain_rows(3, 6))
    (file,) = files.finish()
    if is_committed:
        assert commit_batch(table, batch, [file]) is AttemptDecision.COMMITTED
    assert TableUpkeep(opened(tmp_path), NO_WAIT).sweep() == (0 if is_committed else 1)
    assert (tmp_path / file.path).exists() is is_committed
    assert (tmp_path / "others.parquet").exists()
    if not is_committed:
        assert commit_batch(table, batch, [file]) is AttemptDecision.WRITE_ANEW
        assert write(table, plain_rows(3, 6), 3, 6) is AttemptDecision.COMMITTED
    assert read(tmp_path)["_offset"].to_pylist() == list(range(6))


def test_a_sweep_leaves_young_files(tmp_path):
    files = RowFiles(opened(tmp_path).store, PLAIN.row_schema, order=1)
    files.write(plain_rows(0, 1))
    (file,) = files.finish()
    assert TableUpkeep(opened(tmp_path)).sweep() == 0
    assert (tmp_path / file.path).exists()


def test_a_commit_that_came_first_ends_a_sweep(tmp_path, monkeypatch):
    table = opened(tmp_path)
    batch = as_batch(table, None, 3)
    files = RowFiles(table.store, PLAIN.row_schema, order=1)
    files.write(plain_rows(0, 3))
    done = files.finish()
    own = opened(tmp_path)
    mark = own.mark_sweep

    def mark_late(commit_id):
        assert commit_batch(table, batch, done) is AttemptDecision.COMMITTED
        return mark(commit_id)

    monkeypatch.setattr(own, "mark_sweep", mark_late)
    assert TableUpkeep(own, NO_WAIT).sweep() == 0
    assert read(tmp_path).num_rows == 3


def test_a_checkpoint_is_written_when_it_is_time(tmp_path):
    table = opened(tmp_path)
    upkeep = TableUpkeep(opened(tmp_path), NO_WAIT)
    for number in range(101):
        write(table, plain_rows(number, number + 1), number or None, number + 1)
    assert last_checkpoint(table) == 0
    upkeep.tidy()
    assert last_checkpoint(table) >= 100
    assert opened(tmp_path).progress([0])[0].end_offset == 101
