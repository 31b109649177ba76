"""A task gathers rows, and hands them to the writer of the client."""

from connector.sink.record_writer import GATHER_BYTES, GATHER_ROWS, gather
from connector.tests.sink.written_records import rows_of, write
from storage_engine.protocol.records.record_decoder import decode_batches


def test_small_pieces_are_gathered_and_no_row_is_dropped():
    pieces = [rows_of(10_000), rows_of(0), *[rows_of(10_000)] * 6]
    gathered = [piece.num_rows for piece in gather(pieces)]
    assert gathered == [GATHER_ROWS, 20_000]


def test_a_large_piece_is_passed_as_it_is():
    """Two gibibytes of rows and a few more don't fit into one Arrow array."""
    few, large = rows_of(10), rows_of(3, "x" * (GATHER_BYTES // 3 + 1))
    gathered = list(gather([few, few, large, few]))
    assert [piece.num_rows for piece in gathered] == [20, 3, 10]
    assert gathered[1] is large


def test_no_rows_open_no_writer(cluster):
    assert write([rows_of(0)]).rows == 0
    assert cluster.writers == []


def test_all_rows_are_appended_and_flushed(cluster):
    written = write([rows_of(100), rows_of(50)])
    assert (written.rows, written.batches) == (150, 1)
    assert cluster.writers[0].flushed
    ((_, batch),) = cluster.appended
    assert len(decode_batches(batch.data)) == 150


def test_a_large_record_that_compresses_well_is_written(cluster):
    write([rows_of(1, "x" * 20_000)], compression__type="zstd")
    assert len(cluster.appended) == 1
