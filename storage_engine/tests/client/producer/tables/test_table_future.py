"""The future of a table is done when all of its batches are."""

import pytest

from storage_engine.client.changed import Changed
from storage_engine.client.producer.tables.table_future import TableMetadata, TableProgress
from storage_engine.core.errors import HeadraceError


def test_it_waits_for_the_last_batch_and_tells_the_last_offset_of_each_partition():
    progress = TableProgress(Changed())
    first, second = progress.begin(0, 10), progress.begin(0, 5)
    second(110, None)
    first(100, None)
    third = progress.begin(3, 1)
    progress.end()
    assert not progress.future.done(), "all are begun, and one has no outcome"
    third(-1, None)
    assert progress.future.result(0) == TableMetadata(16, 3, {0: 114, 3: -1})


def test_a_table_without_rows_is_done_at_once():
    progress = TableProgress(Changed())
    progress.end()
    assert progress.future.result(0) == TableMetadata(0, 0, {})


def test_the_first_error_is_told_when_all_have_an_outcome():
    progress = TableProgress(Changed())
    batches = [progress.begin(0, 1) for _ in range(3)]
    progress.end()
    batches[0](-1, HeadraceError("first"))
    batches[1](-1, HeadraceError("second"))
    assert not progress.future.done()
    batches[2](7, None)
    with pytest.raises(HeadraceError, match="first"):
        progress.future.result(0)
