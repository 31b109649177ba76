"""Control batches and the last stable offset of a log: KIP-98."""

import pytest

from storage_engine.core.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    TransactionCoordinatorFencedError,
)
from storage_engine.protocol.records.record_batch import CONTROL_BIT
from storage_engine.tests.log.support import (
    append,
    fill,
    join,
    make_batch,
    open_log,
)
from storage_engine.tests.log.transaction_support import (
    abort,
    aborted_of,
    commit,
    copy,
    encoded,
    filled,
    seen,
    transactional,
    transactions_of,
    values,
    write,
)

KEY = (b"k", b"v")


def test_a_client_writes_no_control_batch_and_opens_no_transaction(tmp_path):
    log = open_log(tmp_path)
    with pytest.raises(InvalidRecordError):
        append(log, attributes=CONTROL_BIT, producer=(1, 0, 0))
    batch = transactional(encoded([KEY], (1, 0, 0)))
    with pytest.raises(InvalidTxnStateError):
        log.leader_appends.append(batch, leader_epoch=0, now_ms=1, allow_transactional=False)
    assert log.log_end_offset == 0 and not log.producer_state.transactions.ongoing


def test_readers_of_committed_transactions_see_what_is_committed_only(tmp_path):
    log = open_log(tmp_path)
    write(log, None, (b"k", b"plain"))
    write(log, 1, (b"k", b"committed"))
    write(log, 2, (b"k", b"aborted"))
    commit(log, 1)
    write(log, None, (b"k", b"between"))
    assert log.last_stable_offset(5) == 2
    assert values(seen(log)) == [b"plain", b"committed"]
    abort(log, 2)
    write(log, 2, (b"k", b"open"))
    assert log.last_stable_offset(7) == 6
    assert values(seen(log)) == [b"plain", b"committed", b"between"]
    everything = [b"plain", b"committed", b"aborted", b"between", b"open"]
    assert values(seen(log, isolated=False)) == everything


def test_a_transaction_that_ended_above_the_high_watermark_is_not_seen_yet(tmp_path):
    log = open_log(tmp_path)
    write(log, 1, KEY, KEY)
    marker = commit(log, 1)
    assert log.last_stable_offset(marker) == 0
    assert log.last_stable_offset(marker + 1) == marker + 1
    log.close()
    write(log := open_log(tmp_path, clean=True, recovery_point=3), 2, KEY)
    second = commit(log, 2)
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=second + 1)
    assert log.last_stable_offset(second) == 3


def test_markers_of_older_epochs_are_refused_and_change_nothing(tmp_path):
    log = open_log(tmp_path)
    write(log, 1, KEY, epoch=3)
    with pytest.raises(InvalidProducerEpochError):
        abort(log, 1, epoch=2)
    assert log.log_end_offset == 1
    commit(log, 1, epoch=3, coordinator_epoch=5)
    with pytest.raises(TransactionCoordinatorFencedError):
        abort(log, 1, epoch=3, coordinator_epoch=4)
    assert log.log_end_offset == 2
    abort(log, 9, coordinator_epoch=1)
    assert log.last_stable_offset(3) == 3 and aborted_of(log) == []


def test_a_follower_knows_what_its_leader_knows(tmp_path):
    leader = filled(open_log(tmp_path / "leader"))
    follower = open_log(tmp_path / "follower")
    copy(leader, follower)
    assert transactions_of(follower) == transactions_of(leader)
    assert aborted_of(follower) == aborted_of(leader)
    assert seen(follower) == seen(leader)


def test_a_follower_takes_no_damaged_control_batch(tmp_path):
    log = open_log(tmp_path)
    bad = make_batch(
        attributes=CONTROL_BIT, producer=(1, 0, -1), payload=b"\x02\0", epoch=0, base_offset=2
    )
    with pytest.raises(CorruptRecordError, match="control batch"):
        log.follower_appends.append(
            join(make_batch(epoch=0), make_batch(epoch=0, base_offset=1), bad)
        )
    assert log.log_end_offset == 0


@pytest.mark.parametrize("keep_snapshots", [True, False])
def test_truncation_opens_transactions_again_whose_markers_it_cuts_off(tmp_path, keep_snapshots):
    whole = filled(open_log(tmp_path / "whole"))
    for offset in range(whole.log_end_offset, 0, -7):
        log = filled(open_log(tmp_path / str(offset)))
        if not keep_snapshots:
            log.snapshots.remove_all()
        log.truncation.truncate_to(offset)
        replayed = open_log(tmp_path / f"{offset} replayed")
        copy(log, replayed)
        assert transactions_of(log) == transactions_of(replayed)
        assert aborted_of(log) == aborted_of(replayed)
        assert seen(log) == seen(replayed)
        if offset % 4 == 0:
            abort(log, 1)
            assert b"1" not in [key for at, key, _ in seen(log) if at > offset]
        log.close_without_flush()
        replayed.close_without_flush()


def test_the_last_stable_offset_is_never_below_the_log_start(tmp_path):
    log = open_log(tmp_path)
    write(log, 1, KEY)
    fill(log, 30)
    log.retention.advance_log_start(20)
    assert log.last_stable_offset(log.log_end_offset) == 20
