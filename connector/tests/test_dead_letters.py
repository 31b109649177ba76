"""Rejected records beside accepted ones."""

from types import SimpleNamespace

import pytest

from connector import ConnectorError, with_dead_letters

SOURCE = ["key", "value", "topic", "partition", "offset", "timestamp"]


@pytest.mark.parametrize(
    ("columns", "accepted", "message"),
    [
        (SOURCE[:4], {"value": "v", "topic": "t"}, "the rows have no column 'offset'"),
        (
            SOURCE,
            {"value": "v", "topic": "t", "partition": "p"},
            "'partition' in accepted can't be",
        ),
        (SOURCE, {"value": "v"}, "'topic' is missing in accepted"),
    ],
)
def test_dead_letters_need_their_origin_and_accepted_rows_a_place(columns, accepted, message):
    frame = SimpleNamespace(columns=columns)
    with pytest.raises(ConnectorError, match=r"^\[BAD_COLUMN\] ") as raised:
        with_dead_letters(frame, reason="why", topic="dead", accepted=accepted)
    assert message in str(raised.value)
