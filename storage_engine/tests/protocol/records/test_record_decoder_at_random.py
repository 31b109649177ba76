"""Batches of random records, gaps and ranges, against the naive codec."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.protocol.records.record_batch import Codec
from storage_engine.protocol.records.record_decoder import (
    LogPiece,
    decode_batches,
    iter_decoded,
    iter_decoded_logs,
)
from storage_engine.tests.protocol.naive_codec import NaiveRecord, encode_batch
from storage_engine.tests.protocol.records.made_records import ROWS, decoded_records, records_of
from storage_engine.tests.sampling import examples


@given(
    st.lists(st.tuples(ROWS, st.sampled_from(list(Codec)), st.booleans()), min_size=1, max_size=6),
    st.data(),
)
@settings(deadline=None)
def test_the_decoder_reads_what_the_naive_encoder_writes(batches, data):
    """Batches of all codecs together, with gaps between offsets as compaction leaves them, and a
    wanted range that cuts anywhere."""
    blob = b""
    expected: list[NaiveRecord] = []
    offset = data.draw(st.integers(0, 1 << 40))
    for rows, codec, append_time in batches:
        steps = data.draw(st.lists(st.integers(1, 90), min_size=len(rows), max_size=len(rows)))
        offsets = [offset + sum(steps[: index + 1]) for index in range(len(rows))]
        records = records_of(rows, offsets)
        offset = offsets[-1] + data.draw(st.integers(1, 5))
        blob += encode_batch(
            records,
            codec=codec,
            attributes=8 if append_time else 0,
            base_offset=offsets[0] - data.draw(st.integers(0, 1)),
            last_offset=offset - 1,
            max_timestamp=1234 if append_time else None,
        )
        if append_time:
            records = [NaiveRecord(r.offset, 1234, r.key, r.value, r.headers) for r in records]
        expected += records
    assert decoded_records(blob) == expected
    start = data.draw(st.integers(expected[0].offset - 2, expected[-1].offset + 2))
    stop = data.draw(st.integers(start, expected[-1].offset + 2))
    wanted = [record for record in expected if start <= record.offset < stop]
    assert decoded_records(blob, start_offset=start, end_offset=stop) == wanted


@given(ROWS, st.integers(1, 5000))
@settings(deadline=None, max_examples=examples(40))
def test_pieces_joined_are_the_whole(rows, group_bytes):
    blob = b"".join(encode_batch(records_of([row], [offset])) for offset, row in enumerate(rows))
    pieces = list(iter_decoded(blob, group_bytes=group_bytes))
    whole = decode_batches(blob)
    assert pa.concat_arrays([piece.values for piece in pieces]).equals(whole.values)
    assert pa.concat_arrays([piece.offsets for piece in pieces]).equals(whole.offsets)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([1, 300, 1 << 20]),
)
@settings(deadline=None, max_examples=examples(40))
def test_several_logs_decoded_together_are_each_what_it_is_alone(logs, group_bytes):
    pieces = []
    for log, count, start, stop in logs:
        rows: list[tuple] = [(None, b"%d" % log, [], 0)] * count
        blob = b"".join(encode_batch(records_of([r], [at])) for at, r in enumerate(rows))
        pieces.append(LogPiece(log, blob, start, stop))
    found = []
    for decoded in iter_decoded_logs(pieces, group_bytes=group_bytes):
        offsets = iter(decoded.records.offsets.to_pylist())
        found += [(log, next(offsets)) for log, length in decoded.rows for _ in range(length)]
        assert next(offsets, None) is None
    assert found == [
        (log, offset)
        for log, count, start, stop in logs
        for offset in range(start, min(stop, count))
    ]
