"""Transaction indexes whose seal is gone, or does not fit: rebuilt before they are used or added to
(R-LOG8, KIP-98). Every byte of them is damaged in `test_damaged_files`.
"""

from storage_engine.log.state import producer_replay
from storage_engine.log.state.producer_replay import rebuild_transaction_indexes
from storage_engine.tests.log.support import fill, open_log, segment_files
from storage_engine.tests.log.transaction_support import abort, aborted_of, filled, seen, write


def test_what_is_added_to_an_index_that_was_cut_adds_nothing_to_the_damage(tmp_path):
    """The newest segment goes on growing after a stop; an older one does after a truncation."""
    log = open_log(tmp_path)
    write(log, 1, (b"k", b"aborted"))
    abort(log, 1)
    log.close()
    (path,) = segment_files(tmp_path, ".txnindex")
    path.write_bytes(b"")
    log = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    write(log, 2, (b"k", b"aborted too"))
    abort(log, 2)
    assert [each.producer_id for each in log.reads.aborted_transactions(0, 4)] == [1, 2]
    fill(log, 60)
    log.close()
    end_offset = log.log_end_offset
    path.write_bytes(path.read_bytes()[:34])
    log = open_log(tmp_path, clean=True, recovery_point=end_offset)
    log.truncation.truncate_to(4)
    write(log, 3, (b"k", b"aborted as well"))
    abort(log, 3)
    assert seen(log) == []
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    assert [each.producer_id for each in log.reads.aborted_transactions(0, 6)] == [1, 2, 3]


def test_damaged_indexes_of_many_segments_are_rebuilt_in_one_pass(tmp_path, caplog, monkeypatch):
    log = filled(open_log(tmp_path))
    expected, entries = seen(log), aborted_of(log)
    log.close()
    paths = segment_files(tmp_path, ".txnindex")
    assert len(paths) >= 4
    for path in paths:
        path.write_bytes(path.read_bytes()[:-34])
    again = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    again.snapshots.remove_all()
    passes = []

    def counted(snapshots, segments, damaged):
        passes.append(len(damaged))
        rebuild_transaction_indexes(snapshots, segments, damaged)

    monkeypatch.setattr(producer_replay, "rebuild_transaction_indexes", counted)
    assert seen(again) == expected
    # The newest one was rebuilt when the log was opened.
    assert passes == [len(paths) - 1]
    assert aborted_of(again) == entries
    assert caplog.text.count("it has no seal") == len(paths)
    again.close()
    caplog.clear()
    last = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    assert seen(last) == expected
    assert "damaged" not in caplog.text
