"""Control batches, the last stable offset and the transaction index of a log: KIP-98."""

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c

from storage_engine.core.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    TransactionCoordinatorFencedError,
)
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.protocol.records.control_record import (
    encode_marker,
    read_marker,
    with_delete_horizon,
)
from storage_engine.protocol.records.record_batch import CONTROL_BIT, crc_matches, read_header
from storage_engine.tests.log.compaction_support import CONFIG as COMPACTED
from storage_engine.tests.log.compaction_support import compact
from storage_engine.tests.log.support import (
    SMALL,
    append,
    fill,
    join,
    make_batch,
    open_log,
    read_all,
    segment_files,
)
from storage_engine.tests.log.transaction_support import (
    abort,
    aborted_of,
    commit,
    encoded,
    seen,
    transactional,
    transactions_of,
    values,
    write,
)

ENTRY = struct.Struct(">hqqqq")
KEY = (b"k", b"v")


def test_a_marker_is_the_record_that_kafka_writes():
    batch = encode_marker(7, 3, TransactionMarker(True, 9), timestamp_ms=1234)
    header = read_header(batch)
    assert crc_matches(batch, 0, len(batch)) and header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    # length 16; attributes, deltas 0; key of 4 bytes: version 0, type 1; value of 6: version 0,
    # coordinator epoch 9; no headers
    assert bytes(batch[61:]).hex() == "20000000" + "0800000001" + "0c000000000009" + "00"
    assert read_marker(batch) == TransactionMarker(True, 9)
    abort_batch = encode_marker(7, 3, TransactionMarker(False, 9), timestamp_ms=1234)
    assert read_marker(abort_batch) == TransactionMarker(False, 9)


@pytest.mark.parametrize("horizon_ms", [0, 1234, 5_000_000_000_000])
def test_a_marker_with_a_delete_horizon_says_the_same(horizon_ms):
    batch = encode_marker(7, 3, TransactionMarker(False, 9), timestamp_ms=1234)
    changed = with_delete_horizon(batch, horizon_ms)
    header = read_header(changed)
    assert crc_matches(changed, 0, len(changed))
    assert read_marker(changed) == TransactionMarker(False, 9)
    assert header.base_timestamp == horizon_ms and header.attributes & 0x40
    assert header.max_timestamp == 1234
    assert read_marker(with_delete_horizon(changed, 77)) == TransactionMarker(False, 9)


def test_every_byte_of_a_control_record_may_be_wrong():
    batch = encode_marker(7, 3, TransactionMarker(False, 9), timestamp_ms=1234)
    for position in range(61, len(batch)):
        for value in range(256):
            damaged = bytearray(batch)
            damaged[position] = value
            try:
                read_marker(damaged)
            except CorruptRecordError as error:
                assert "control batch at offset 0" in str(error)


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


def test_entries_of_the_index_are_those_of_the_format(tmp_path):
    log = open_log(tmp_path)
    write(log, 1, KEY)
    write(log, 2, KEY, KEY)
    abort(log, 2)
    abort(log, 1)
    log.close()
    (path,) = segment_files(tmp_path, ".txnindex")
    data = path.read_bytes()
    assert list(ENTRY.iter_unpack(data[:68])) == [(0, 2, 1, 3, 0), (0, 1, 0, 4, 5)]
    assert list(ENTRY.iter_unpack(data[68:])) == [(0x7FFF, 2, crc32c(data[:68]), 0, 0)]


def test_an_aborted_transaction_is_found_from_its_first_offset_to_its_marker(tmp_path):
    log = open_log(tmp_path)
    first = write(log, 1, KEY)
    for _ in range(60):
        write(log, None, KEY, KEY)
    write(log, 1, KEY)
    marker = abort(log, 1)
    fill(log, 40)
    assert log.segment_count > 5
    for start in range(0, marker + 1):
        (found,) = log.reads.aborted_transactions(start, start + 1)
        assert (found.first_offset, found.last_offset) == (first, marker)
    assert log.reads.aborted_transactions(marker + 1, log.log_end_offset) == []


def test_a_follower_knows_what_its_leader_knows(tmp_path):
    leader = filled(open_log(tmp_path / "leader"))
    follower = open_log(tmp_path / "follower")
    while follower.log_end_offset < leader.log_end_offset:
        piece = leader.reads.read(follower.log_end_offset, max_bytes=700)
        assert piece is not None
        follower.follower_appends.append(memoryview(bytes(piece.view())))
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


def filled(log, rounds: int = 16):
    """Producers 1 to 3 in turns, some of whose transactions are aborted; the last are open."""
    for number in range(rounds):
        for producer in (1, 2, 3):
            write(log, producer, (b"%d" % producer, b"%d of %d" % (number, producer)))
        write(log, None, (b"0", b"%d plain" % number))
        for producer in (1, 2, 3):
            if producer != number % 3:
                abort(log, producer) if (number + producer) % 2 else commit(log, producer)
    return log


def damage_none(paths):
    pass


def damage_remove(paths):
    for path in paths:
        path.unlink()


def damage_cut(paths):
    for path in paths:
        path.write_bytes(path.read_bytes()[:-1])


def damage_garbage(paths):
    for path in paths:
        path.write_bytes(b"\x55" * path.stat().st_size)


def damage_version(paths):
    for path in paths:
        data = path.read_bytes()
        if data:
            path.write_bytes(b"\0\1" + data[2:])


def damage_another(paths):
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "damage",
    [damage_none, damage_remove, damage_cut, damage_garbage, damage_version, damage_another],
)
def test_whatever_happens_to_the_index_files_no_aborted_record_is_seen(tmp_path, damage, clean):
    log = filled(open_log(tmp_path))
    expected, known, entries = seen(log), transactions_of(log), aborted_of(log)
    assert log.segment_count > 3 and len(entries) > 6
    log.close()
    damage([path for path in segment_files(tmp_path, ".txnindex") if path.stat().st_size])
    again = open_log(tmp_path, clean=clean, recovery_point=log.log_end_offset)
    assert transactions_of(again) == known
    assert seen(again) == expected
    assert aborted_of(again) == entries


def test_a_log_of_a_version_without_transaction_indexes_is_opened(tmp_path):
    log = open_log(tmp_path)
    fill(log, 60)
    log.close()
    damage_remove(segment_files(tmp_path, ".txnindex"))
    again = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    assert len(read_all(again)) == 60
    assert again.reads.aborted_transactions(0, log.log_end_offset) == []


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


def copy(source, target) -> None:
    """As a follower does."""
    while target.log_end_offset < source.log_end_offset:
        piece = source.reads.read(target.log_end_offset, max_bytes=5000)
        target.follower_appends.append(memoryview(bytes(piece.view())))


def test_the_index_of_a_deleted_segment_goes_with_it(tmp_path):
    log = filled(open_log(tmp_path))
    count = len(segment_files(tmp_path, ".txnindex"))
    log.retention.advance_log_start(log.log_end_offset - 2)
    left = segment_files(tmp_path, ".txnindex")
    assert len(left) < count - 1
    deleted = {path.name.split(".")[0] for path in segment_files(tmp_path, ".deleted")}
    assert {f"{stem}.txnindex" for stem in deleted}.isdisjoint(path.name for path in left)
    names = [path.name for path in segment_files(tmp_path, ".deleted")]
    assert sum(".txnindex." in name for name in names) == len(deleted)
    log.segments.take_deleted_files(10**9)


def test_the_last_stable_offset_is_never_below_the_log_start(tmp_path):
    log = open_log(tmp_path)
    write(log, 1, KEY)
    fill(log, 30)
    log.retention.advance_log_start(20)
    assert log.last_stable_offset(log.log_end_offset) == 20


# -- compaction ------------------------------------------------------------------------------------

CONFIG = replace(COMPACTED, segment_bytes=600, delete_retention_ms=1000)


def kinds(log) -> list[tuple[int, str]]:
    """Base offset and kind of each batch in the log."""
    found = []
    for header in read_all(log, 0):
        kind = "marker" if header.is_control else "data" if header.records_count else "empty"
        found.append((header.base_offset, kind))
    return found


def roll(log) -> None:
    """Fills the active segment with records of no producer, so that all before can be compacted."""
    segment = log.segment_count
    while log.segment_count == segment:
        write(log, None, (b"filler", bytes(200)))


def test_nothing_at_or_above_the_last_stable_offset_is_compacted(tmp_path):
    log = open_log(tmp_path, CONFIG)
    write(log, None, (b"a", b"old"))
    write(log, 1, (b"a", b"new"))
    for _ in range(3):
        roll(log)
    compact(log)
    assert (b"a", b"old") in [row[1:] for row in seen(log)]
    abort(log, 1)
    roll(log)
    compact(log)
    assert (b"a", b"old") in [row[1:] for row in seen(log)]
    assert b"new" not in values(seen(log, isolated=False))


def test_an_aborted_record_displaces_none_and_is_dropped(tmp_path):
    log = open_log(tmp_path, CONFIG)
    write(log, None, (b"a", b"old"))
    write(log, 1, (b"a", b"aborted"), (b"b", b"aborted"))
    marker = abort(log, 1)
    write(log, 1, (b"c", b"committed"))
    commit(log, 1)
    roll(log)
    assert compact(log)
    found = values(seen(log, isolated=False))
    assert b"old" in found and b"committed" in found and b"aborted" not in found
    assert [entry[2] for entry in aborted_of(log)] == [marker]


def test_a_marker_goes_when_its_data_and_then_its_time_are_over(tmp_path):
    log = open_log(tmp_path, CONFIG)
    write(log, 1, (b"a", b"1"))
    marker = commit(log, 1)
    for number in range(6):
        # So that the batch is not among the last of its producer.
        write(log, 1, (b"a%d" % number, b""))
    commit(log, 1)
    write(log, None, (b"a", b"2"))
    roll(log)
    assert compact(log, now_ms=10_000)
    assert (0, "data") not in kinds(log) and (marker, "marker") in kinds(log)
    roll(log)
    assert compact(log, now_ms=20_000)
    assert (marker, "marker") in kinds(log)
    roll(log)
    assert compact(log, now_ms=20_999)
    assert (marker, "marker") in kinds(log)
    roll(log)
    assert compact(log, now_ms=21_000)
    assert (marker, "marker") not in kinds(log)


def test_the_marker_of_an_empty_batch_that_tells_a_sequence_stays(tmp_path):
    log = open_log(tmp_path, CONFIG)
    write(log, 1, (b"a", b"aborted"))
    marker = abort(log, 1)
    for number in range(4):
        roll(log)
        compact(log, now_ms=number * 100_000)
        assert kinds(log)[:2] == [(0, "empty"), (marker, "marker")]
    log.close()
    damage_remove(segment_files(tmp_path, ".snapshot"))
    damage_remove(segment_files(tmp_path, ".txnindex"))
    again = open_log(tmp_path, CONFIG, clean=True, recovery_point=log.log_end_offset)
    assert again.producer_state.get(1).batches[-1].last_sequence == 0
    assert again.last_stable_offset(again.log_end_offset) == again.log_end_offset


def test_the_marker_that_alone_tells_an_epoch_stays(tmp_path):
    log = open_log(tmp_path, CONFIG)
    write(log, 1, (b"a", b"fenced"), epoch=0)
    marker = abort(log, 1, epoch=1)
    for number in range(4):
        roll(log)
        compact(log, now_ms=number * 100_000)
    assert (0, "data") not in kinds(log) and (0, "empty") not in kinds(log)
    assert (marker, "marker") in kinds(log)
    with pytest.raises(InvalidProducerEpochError):
        write(log, 1, KEY, epoch=0)


def test_a_crash_between_flush_and_roll_loses_no_entry(tmp_path):
    """`flush.before.ack` flushes up to the end; the roll that follows flushes nothing."""
    from simulation.world.disk import SimulatedDisk

    disk = SimulatedDisk(tmp_path)
    log = open_log(tmp_path, SMALL, disk=disk)
    write(log, 1, KEY)
    abort(log, 1)
    write(log, None, (b"k", b"plain"))
    log.flush()
    recovery_point = log.recovery_point
    log.roll(log.log_end_offset)
    log.close_without_flush()
    disk.lose_power()
    again = open_log(tmp_path, SMALL, disk=disk, recovery_point=recovery_point)
    assert values(seen(again)) == [b"plain"]
    assert len(aborted_of(again)) == 1
