"""Snapshots of the producers: what is read is what was written, or nothing."""

import struct

import pytest
from crc32c import crc32c

from storage_engine.core.retained.producer_state import (
    ProducerStates,
    SequencedBatch,
)
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.state.producer_snapshots import (
    SNAPSHOTS_KEPT,
    ProducerSnapshots,
    decode,
    encode,
)
from storage_engine.tests.log.support import append, fill, open_log, segment_files


def some_states() -> ProducerStates:
    states = ProducerStates(forgotten_to=1 << 50)
    for producer_id in (1, 1 << 40):
        for number in range(7):
            states.record(
                producer_id, 3, SequencedBatch(number, number, number, number, 1000), now_ms=50
            )
    states.record(4, 0, SequencedBatch(0, 0, 60, 60, 1000), now_ms=60, in_transaction=True)
    for producer_id in (5, 6):
        batch = SequencedBatch(0, 0, 60 + producer_id, 60 + producer_id, 1000)
        states.record(producer_id, 2, batch, now_ms=70, in_transaction=True)
    states.record_marker(5, 2, TransactionMarker(False, 9), offset=70, now_ms=77)
    return states


def as_values(states: ProducerStates) -> list[tuple]:
    return [
        (
            entry.producer_id,
            entry.epoch,
            entry.last_seen_ms,
            entry.coordinator_epoch,
            list(entry.batches),
        )
        for entry in states
    ]


def test_a_snapshot_is_read_as_written():
    states = some_states()
    again = decode(encode(states))
    assert as_values(again) == as_values(states)
    assert again.forgotten_to == 1 << 50
    assert list(again.transactions.ongoing.items()) == [(4, 60), (6, 66)]
    assert again.transactions.ended == ((65, 70),)


def test_every_flipped_or_cut_byte_is_noticed():
    data = encode(some_states())
    for position in range(len(data)):
        with pytest.raises(ValueError):
            decode(data[:position])
        damaged = bytearray(data)
        damaged[position] ^= 0x41
        with pytest.raises(ValueError):
            decode(bytes(damaged))


def test_only_the_newest_few_are_kept(tmp_path):
    snapshots = ProducerSnapshots(REAL_DISK, tmp_path, [])
    for offset in range(0, 100, 10):
        snapshots.write(offset, some_states())
    assert len(list(tmp_path.iterdir())) == SNAPSHOTS_KEPT
    loaded = snapshots.load_newest(85)
    assert loaded is not None and loaded[0] == 80
    assert sorted(int(path.stem) for path in tmp_path.iterdir()) == [70, 80]


def test_a_damaged_snapshot_gives_way_to_an_older_one(tmp_path):
    log = open_log(tmp_path)
    for number in range(60):
        append(log, producer=(9, 0, number), payload=bytes(100))
    log.close()
    newest = segment_files(tmp_path, ".snapshot")[-1]
    newest.write_bytes(b"junk")
    again = open_log(tmp_path, clean=True, recovery_point=60)
    assert append(again, producer=(9, 0, 59), payload=bytes(100)).duplicate
    assert not append(again, producer=(9, 0, 60)).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_producers_survive_reopening_also_without_any_snapshot(tmp_path, clean):
    log = open_log(tmp_path)
    for number in range(60):
        append(log, producer=(9, 0, number), payload=bytes(100))
    log.close()
    for path in segment_files(tmp_path, ".snapshot"):
        path.unlink()
    again = open_log(tmp_path, clean=clean, recovery_point=60 if clean else 0)
    producer = again.producer_state.get(9)
    assert producer is not None
    assert [batch.first_sequence for batch in producer.batches] == [
        55, 56, 57, 58, 59,
    ]  # fmt: skip


def test_a_clean_opening_reads_no_batch_for_the_producers(tmp_path):
    log = open_log(tmp_path)
    append(log, producer=(9, 0, 0))
    fill(log, 60)
    log.close()
    again = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    assert again.producer_state.get(9) is not None


@pytest.mark.parametrize("position", [16, 20, 24])
@pytest.mark.parametrize("count", [1, 1 << 31, (1 << 32) - 1])
def test_a_count_that_does_not_fit_is_no_snapshot(position, count):
    """As another program may have written it, with a CRC that is right."""
    data = bytearray(encode(ProducerStates()))
    struct.pack_into(">I", data, position, count)
    struct.pack_into(">I", data, 4, crc32c(memoryview(data)[8:]))
    with pytest.raises(ValueError, match="count"):
        decode(bytes(data))
