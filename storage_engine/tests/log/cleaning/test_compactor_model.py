"""Compaction against a dict: whatever is written, deleted and compacted in whatever order, every
key has the record that a naive model has for it, and every follower and every recovered log the
leader epochs at the offsets where they began.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.tests.log.compaction_support import CONFIG, compact, newest_of, put, rows
from storage_engine.tests.log.support import open_log
from storage_engine.tests.sampling import examples

RETENTION_MS = 1000

LONG_KEY = b"long" * 1100
ALL_KEYS = [b"", b"a", b"b", b"\0", b"a\0", LONG_KEY, *(b"%d" % n for n in range(6))]
KEYS = st.sampled_from(ALL_KEYS)
VALUES = st.one_of(st.none(), st.binary(max_size=60))
BATCH = st.tuples(
    st.just("put"),
    # With two long keys a batch could be larger than a segment.
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6).filter(
        lambda records: [key for key, _ in records].count(LONG_KEY) < 2
    ),
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    st.integers(0, 5000),
)
EVERY_KEY = st.tuples(
    st.just("put"),
    st.just([(key, b"new") for key in ALL_KEYS]),
    st.just("none"),
    st.integers(0, 5000),
)
"""Nothing is left of the batches before it."""
ACTION = st.one_of(
    BATCH,
    BATCH,
    BATCH,
    EVERY_KEY,
    st.tuples(st.just("compact"), st.sampled_from([96 * 3, 1 << 20]), st.floats(0.2, 1)),
    st.tuples(st.just("wait"), st.integers(1, 2 * RETENTION_MS)),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("elect"), st.integers(1, 3)),
)


@settings(max_examples=examples(150), deadline=None)
@given(actions=st.lists(ACTION, min_size=5, max_size=40), segment_bytes=st.integers(9000, 12_000))
def test_every_key_has_the_record_of_the_model(actions, segment_bytes):
    config = replace(
        CONFIG, segment_bytes=segment_bytes, segment_ms=1, delete_retention_ms=RETENTION_MS
    )
    now_ms = 1_000_000
    written = {}
    epoch = 0
    starts: dict[int, int] = {}
    """The offset of the first batch of each leader epoch that has one."""
    deleted_at: dict[int, int] = {}
    """When a tombstone may first go: it was kept by a pass, its time is over."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        log = open_log(path, config)
        for action in actions:
            match action:
                case ("put", records, codec, time):
                    times = [time] * len(records)
                    base = put(log, records, compression=codec, timestamps_ms=times, epoch=epoch)
                    starts.setdefault(epoch, base)
                    for number, (key, value) in enumerate(records):
                        written[base + number] = (key, value, time)
                case ("compact", buffer_bytes, share):
                    bound = int(log.log_end_offset * share)
                    compact(log, now_ms=now_ms, high_watermark=bound, buffer_bytes=buffer_bytes)
                    for row in rows(log):
                        if row.value is None:
                            deleted_at.setdefault(row.offset, now_ms)
                case ("wait", milliseconds):
                    now_ms += milliseconds
                    check_epochs_of_a_follower(log, starts)
                case ("elect", higher):
                    epoch += higher
                    log.start_epoch(epoch)
                case ("reopen", clean):
                    log.close() if clean else log.close_without_flush()
                    log = open_log(
                        path,
                        config,
                        clean=clean,
                        recovery_point=log.log_end_offset if clean else 0,
                        first_dirty_offset=log.cleaning.first_dirty_offset,
                    )
                    epochs = log.leader_epochs.entries
                    assert told_epochs(epochs, starts) == told_epochs(starts.items(), starts)
            check(log, written, deleted_at, now_ms)
        check_epochs_of_a_follower(log, starts)
        log.close()


def told_epochs(epochs, starts):
    """Without what nobody asks for: the start of epoch 0, before which there is none, and epochs in
    which nothing was written."""
    return [(epoch, start) for epoch, start in epochs if epoch > 0 and epoch in starts]


def check_epochs_of_a_follower(leader, starts):
    """One that begins now, reads all that is left, and is killed."""
    with tempfile.TemporaryDirectory() as folder:
        follower = open_log(Path(folder), leader.config)
        offset = leader.log_start_offset
        while (piece := leader.reads.read(offset, max_bytes=4000)) is not None:
            follower.follower_appends.append(piece.view())
            offset = piece.end_offset
        for _ in range(2):
            epochs = follower.leader_epochs.entries
            assert told_epochs(epochs, starts) == told_epochs(starts.items(), starts)
            follower.close_without_flush()
            follower = open_log(Path(folder), leader.config)
        follower.close_without_flush()


def check(log, written, deleted_at, now_ms):
    found = rows(log)
    offsets = [row.offset for row in found]
    assert offsets == sorted(set(offsets))
    for row in found:
        assert (row.key, row.value, row.timestamp_ms) == written[row.offset]
    clean = [row.key for row in found if row.offset < log.cleaning.first_dirty_offset]
    assert len(set(clean)) == len(clean)
    newest = newest_of(found)
    expected = {key: offset for offset, (key, _, _) in sorted(written.items())}
    for key, offset in expected.items():
        if key in newest:
            assert newest[key].offset == offset
        else:
            assert written[offset][1] is None
            assert now_ms >= deleted_at[offset] + RETENTION_MS
    if written:
        assert log.log_end_offset == max(written) + 1
