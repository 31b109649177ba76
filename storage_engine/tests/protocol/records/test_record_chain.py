"""Finding records without following the chain, against following it."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.protocol.records import record_chain
from storage_engine.protocol.records.record_chain import (
    BrokenChainError,
    RecordRegions,
    find_records,
)
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.protocol.naive_codec import (
    NaiveRecord,
    encode_batch,
    encode_record,
    varint,
    wrap,
)
from storage_engine.tests.protocol.records.damaged_records import (
    TOO_LONG,
    assert_damage,
    body_of,
    record,
    rejected,
)
from storage_engine.tests.sampling import examples

FILLER = st.one_of(
    st.sampled_from(
        [b"\x00", b"\x0c\x00", b"\x0e\x00", b"\x80\x01\x00", b"\x8e\x00", b"\xff", b"\x10"]
    ),
    st.binary(max_size=4),
)
NOISE = st.lists(FILLER, max_size=12).map(b"".join)
VALUE = st.one_of(NOISE, st.integers(0, 9000).map(lambda size: b"\x0e\x00" * size), st.binary())
RECORD = st.builds(
    lambda value, key, headers: NaiveRecord(0, 0, key, value, headers),
    VALUE,
    st.none() | NOISE,
    st.lists(st.tuples(st.just("h"), NOISE), max_size=2),
)
LIE = st.builds(lambda length, rest: varint(length) + rest, st.integers(-3, 40), NOISE)


def regions_of(
    bodies: list[bytes], counts: list[int], gap: bytes
) -> tuple[np.ndarray, RecordRegions]:
    starts, stops = [], []
    source = b""
    for body in bodies:
        starts.append(len(source))
        source += body
        stops.append(len(source))
        source += gap
    source = source[: stops[-1]]
    return np.frombuffer(source, np.uint8), RecordRegions(
        *(np.array(column, np.int64) for column in (starts, stops, counts))
    )


def outcome(find, source, regions):
    try:
        spans = find(source, regions)
    except BrokenChainError as error:
        return error.region, error.record, error.reason
    return spans.bodies.tolist(), spans.stops.tolist()


@given(st.lists(st.lists(RECORD, min_size=1, max_size=80), min_size=1, max_size=5), NOISE)
@settings(deadline=None)
def test_real_records_are_found_without_a_walk(batches, gap):
    bodies = [
        b"".join(encode_record(record, -number, 0) for number, record in enumerate(batch))
        for batch in batches
    ]
    source, regions = regions_of(bodies, list(map(len, batches)), gap)
    walked = record_chain._walk_all(source, regions)
    for find in (record_chain._find_by_candidates, record_chain._find_in_rounds):
        found = find(source, regions)
        assert found is not None
        assert found.bodies.tolist() == walked.bodies.tolist()
        assert found.stops.tolist() == walked.stops.tolist()


@pytest.mark.parametrize("piece_bytes", [13, 100, 1 << 17])
def test_lengths_of_all_sizes_are_found_across_the_ends_of_pieces(piece_bytes, monkeypatch):
    monkeypatch.setattr(record_chain, "_PIECE_BYTES", piece_bytes)
    sizes = [10, 300, 5_000, 20, 40, 500, 30] * 2
    records = [NaiveRecord(row, 0, None, b"\x0e\x00" * size) for row, size in enumerate(sizes)]
    body = b"".join(encode_record(each, 0, 0) for each in records)
    source, regions = regions_of([body], [len(sizes)], b"")
    found = record_chain._find_by_candidates(source, regions)
    walked = record_chain._walk_all(source, regions)
    assert found is not None
    assert (found.bodies.tolist(), found.stops.tolist()) == (
        walked.bodies.tolist(),
        walked.stops.tolist(),
    )


def test_small_batches_of_wide_records_are_followed_together(monkeypatch):
    sizes = np.random.default_rng(1).integers(1_000, 9_000, (40, 3)).tolist()
    counts = [1 + number % 3 for number in range(40)]
    bodies = [
        b"".join(
            encode_record(NaiveRecord(row, 0, None, b"\x0e\x00" * size), 0, 0)
            for row, size in enumerate(batch[:count])
        )
        for batch, count in zip(sizes, counts, strict=True)
    ]
    source, regions = regions_of(bodies, counts, b"gap")
    walked = outcome(record_chain._walk_all, source, regions)
    for other in ("_find_by_candidates", "_walk_all"):
        monkeypatch.setattr(record_chain, other, None)
    assert outcome(find_records, source, regions) == walked


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (encode_record(NaiveRecord(0, 0, None, b"v"), 0, 0) + b"\x00", "1 bytes come after"),
        (varint(40) + b"\x00" * 20, "its length is 40"),
        (varint(3) + b"\x00" * 3, "its length is 3"),
        (b"\xff", "is cut off"),
    ],
)
def test_damage_in_small_batches_is_that_of_its_batch(last, reason):
    wide = encode_record(NaiveRecord(0, 0, None, b"v" * 60_000), 0, 0)
    source, regions = regions_of([wide + wide, wide + last, wide], [2, 2, 1], b"gap")
    with pytest.raises(BrokenChainError, match=reason) as caught:
        find_records(source, regions)
    assert caught.value.region == 1


@given(
    st.lists(
        st.tuples(
            st.lists(RECORD.map(lambda record: encode_record(record, 0, 0)) | LIE, max_size=6),
            st.integers(-1, 1),
        ),
        min_size=1,
        max_size=4,
    ),
    NOISE,
)
@settings(deadline=None, max_examples=examples(500))
def test_lies_have_the_same_outcome_as_with_a_walk(batches, gap):
    bodies = [b"".join(parts) for parts, _ in batches]
    counts = [max(1, len(parts) + wrong) for parts, wrong in batches]
    for index, count in enumerate(counts):
        # The decoder lets no batch pass that is too short for its records.
        bodies[index] += b"\x00" * max(0, 7 * count - len(bodies[index]))
    source, regions = regions_of(bodies, counts, gap)
    walked = outcome(record_chain._walk_all, source, regions)
    assert outcome(find_records, source, regions) == walked
    found = record_chain._find_in_rounds(source, regions)
    if found is not None:
        assert (found.bodies.tolist(), found.stops.tolist()) == walked


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("value_bytes", [0, 55, 56, 57, 58, 100])
def test_records_of_equal_size_need_no_search(count, value_bytes):
    """Across the rows where the offset delta, and with it the length, takes a byte more."""
    records = (NaiveRecord(i, 0, None, b"v" * value_bytes) for i in range(count))
    body = b"".join(encode_record(record, 0, 0) for record in records)
    source, regions = regions_of([body, body], [count, count], b"gap")
    found = record_chain._find_by_size(source, regions)
    walked = record_chain._walk_all(source, regions)
    assert found is not None
    assert found.bodies.tolist() == walked.bodies.tolist()
    assert found.stops.tolist() == walked.stops.tolist()


def test_records_of_which_only_the_sum_of_sizes_fits_are_not_taken_for_equal():
    sizes = [20, 19, 21, 20]
    body = b"".join(
        encode_record(NaiveRecord(i, 0, None, b"v" * size), 0, 0) for i, size in enumerate(sizes)
    )
    source, regions = regions_of([body], [4], b"")
    assert record_chain._find_by_size(source, regions) is None


def test_first_record_that_leads_nowhere_is_not_skipped():
    """Within it stands what reads as a record too, and leads to a chain that is whole and as long
    as the batch says."""
    first = varint(20) + b"\x00"
    within = varint(6) + b"\x00" * 6
    chain = b"".join(encode_record(NaiveRecord(i, 0, None, b"x"), 0, 0) for i in range(2))
    source, regions = regions_of([first + within + chain], [2], b"")
    with pytest.raises(BrokenChainError):
        find_records(source, regions)


def test_counts_that_are_wrong_in_each_batch_but_right_in_all_are_found():
    one = encode_record(NaiveRecord(0, 0, None, b"abc"), 0, 0)
    two = encode_record(NaiveRecord(0, 0, None, b"defghi"), 0, 0)
    source, regions = regions_of([one, one + two + one], [2, 2], b"")
    with pytest.raises(BrokenChainError) as failure:
        find_records(source, regions)
    assert failure.value.region == 0


@pytest.mark.parametrize(
    "payload_of",
    [
        lambda: bytes(1 << 20),
        lambda: b"\x0c\x00" * (1 << 19),
        lambda: b"\x0e\x00\x00\x00\x01\x01\x00\x00" * (1 << 17),
        lambda: b"\x80\x01\x00" * (1 << 18),
        lambda: b"\xfe\xff\x03\x00" * (1 << 18),
        lambda: encode_batch([NaiveRecord(i, 0, None, b"inner") for i in range(40_000)]),
    ],
    ids=["zeros", "short lengths", "inner records", "lengths", "far lengths", "a batch within"],
)
@pytest.mark.parametrize("records", [1, 100])
def test_values_that_look_like_records_are_still_values(payload_of, records):
    """Every few bytes a false start; the work stays linear and the chain is right."""
    payload = payload_of()
    size = len(payload) // records
    parts = [payload[i * size : i * size + size - i] for i in range(records)]
    blob = encode_batch([NaiveRecord(i, 0, None, part) for i, part in enumerate(parts)])
    started = time.monotonic()
    assert decode_batches(blob).values.to_pylist() == parts
    assert time.monotonic() - started < 30


def test_record_chain_of_a_hostile_batch_takes_linear_time():
    """A chain that almost holds: the last length is wrong, so every shortcut fails."""
    records = b"".join(record(body_of(offset=varint(i), value=b"\x02v")) for i in range(60_000))
    blob = wrap(records + varint(500) + body_of(), count=60_001)
    started = time.monotonic()
    assert "record 60000: its length is 500" in rejected(blob)
    assert time.monotonic() - started < 30


def test_regions_that_touch_do_not_run_into_each_other():
    """The last record of one region claims the first of the next."""
    inner = record(body_of())
    source = np.frombuffer(varint(2 * len(inner)) + inner[1:] + inner + inner, np.uint8)
    regions = RecordRegions(
        np.array([0, len(source) - len(inner)]),
        np.array([len(source) - len(inner), len(source)]),
        np.array([1, 1]),
    )
    with pytest.raises(ValueError, match="its length is"):
        find_records(source, regions)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (record(b"\x00" * 5) + b"\x00\x00", "its length is 5"),
        (varint(-1) + b"\x00" * 10, "its length is -1"),
        (varint(1 << 33) + b"\x00" * 10, "its length is 8589934592, 10 bytes are left"),
        (varint(200) + body_of(), "its length is 200, 7 bytes are left"),
        (TOO_LONG + body_of(), "its length is cut off or too long"),
        (b"\x80" * 9, "its length is cut off or too long"),
        (b"", "1 records can't fit into 0 bytes"),
    ],
)
def test_a_length_that_leads_nowhere_is_named(records, reason):
    assert_damage(records, reason)
