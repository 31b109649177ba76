"""Headers of dead letters, held against the same in plain Python."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.protocol.dead_letter_headers import (
    OFFSET,
    PARTITION,
    REASON,
    TIMESTAMP,
    TOPIC,
)
from storage_engine.protocol.dead_letters import read_letters, without_reason
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

NAMES = st.sampled_from([TOPIC, PARTITION, OFFSET, TIMESTAMP, REASON, "user's own"])
VALUES = st.sampled_from(
    [b"orders", b"0", b"17", b"-1", b"-2", b"", b"\xff", b"1e3", b"9" * 18, b"9" * 19, b"a b", None]
)
HEADERS = st.lists(st.one_of(st.none(), st.lists(st.tuples(NAMES, VALUES), max_size=7)), max_size=8)


def column(rows):
    return pa.array(
        [None if r is None else [{"key": k, "value": v} for k, v in r] for r in rows], HEADERS_TYPE
    )


def number(text):
    digits = (text or b"").removeprefix(b"-") if text == b"-1" else text
    return int(text) if digits and digits.isdigit() and len(digits) <= 18 else None


@given(HEADERS)
def test_letters_are_read_as_their_headers_say(rows):
    letters = read_letters(column(rows))
    last = [dict(row or ()) for row in rows]
    legal = (b"orders", b"0", b"17", b"-1", b"-2", b"1e3", b"9" * 18, b"9" * 19)
    assert letters.topics.to_pylist() == [
        each[TOPIC].decode() if each.get(TOPIC) in legal else None for each in last
    ]
    assert letters.partitions.to_pylist() == [number(each.get(PARTITION)) for each in last]
    assert letters.offsets.to_pylist() == [number(each.get(OFFSET)) for each in last]
    assert letters.timestamps_ms.to_pylist() == [number(each.get(TIMESTAMP)) for each in last]
    assert letters.reasons.to_pylist() == [each.get(REASON) for each in last]
    assert letters.complete.to_pylist() == [
        each.get(TOPIC) in legal
        and number(each.get(PARTITION)) is not None
        and number(each.get(OFFSET)) is not None
        for each in last
    ]


@given(HEADERS)
def test_the_reason_alone_is_taken_away(rows):
    assert without_reason(column(rows)).equals(
        column([None if row is None else [h for h in row if h[0] != REASON] for row in rows])
    )
