"""The damage of a record is named by its field."""

import pytest

from storage_engine.tests.protocol.naive_codec import encode_record, varint, wrap
from storage_engine.tests.protocol.records.damaged_records import (
    GOOD,
    TOO_LONG,
    assert_damage,
    body_of,
    record,
    rejected,
)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (
            record(body_of(timestamp=b"\x80" * 10 + b"\x01")),
            "timestamp delta is cut off or too long",
        ),
        (record(body_of(offset=TOO_LONG)), "offset delta is cut off or too long"),
        (record(body_of(offset=varint(1))), "offset delta 1 is out of order"),
        (record(body_of(offset=varint(-1))), "offset delta -1 is out of order"),
        (record(body_of(key=TOO_LONG)), "key length is cut off or too long"),
        (record(body_of(key=varint(-2))), "key length is -2"),
        (record(body_of(key=varint(100))), "key length is 100, 3 bytes are left"),
        (record(body_of(value=varint((1 << 31) - 1))), "value length is 2147483647, 1 bytes"),
        (record(body_of(value=varint(-5) + b"x")), "value length is -5"),
        (record(body_of(headers=varint(-1))), "header count is -1"),
        (record(body_of(headers=b"\x00extra")), "header count is 0, 5 bytes come after"),
        (record(body_of(headers=varint(1 << 30))), "headers can't fit"),
        (record(body_of())[:-1] + b"\x80", "header count is cut off"),
        (record(body_of()) + b"x", "1 bytes come after"),
    ],
)
def test_each_damage_of_a_field_is_named(records, reason):
    assert_damage(records, reason)


def test_offsets_that_do_not_ascend_are_corrupt():
    blob = wrap(encode_record(GOOD, 0, 0) * 2, count=2)
    assert "offset delta 0 is out of order" in rejected(blob)
