"""Values in the errors about rows."""

import pytest

from storage_engine.protocol.typed.row_errors import SHOWN_CHARACTERS, shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "None"),
        ("", ""),
        (b"caf\xc3\xa9", "café"),
        (b"\xff", "\\xff"),
        ("x" * SHOWN_CHARACTERS, "x" * SHOWN_CHARACTERS),
        ("x" * (SHOWN_CHARACTERS + 1), "x" * (SHOWN_CHARACTERS - 3) + "..."),
    ],
)
def test_a_value_is_shown_shortened(value, expected):
    assert shown(value) == expected


@pytest.mark.parametrize("value", ["a\nb", b"a\r\nb", "\x1b[31m", "\u2028"])
def test_no_value_breaks_the_line(value):
    assert shown(value).isprintable()
