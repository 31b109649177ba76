"""Text of foreign origin is shown on one line."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.printable import printable


def test_ordinary_names_stay_as_they_are():
    for name in ("flights", "a.b_c-1", "Zürich", "北京", "two words", "C:\\path", ""):
        assert printable(name) == name


def test_what_could_begin_a_line_or_move_the_cursor_is_escaped():
    assert printable("a\nb\r\tc") == "a\\nb\\r\\tc"
    assert printable("\x1b[2Jx\x00\x7f\x85") == "\\x1b[2Jx\\x00\\x7f\\x85"
    assert printable("\u2028\u2029") == "\\u2028\\u2029"
    assert printable("\u202egnp.exe\u2066") == "\\u202egnp.exe\\u2066"
    assert printable("\ud800") == "\\ud800"
    assert printable("\U000e0001") == "\\U000e0001"


@given(st.text(st.characters()))
def test_any_text_is_one_line_that_a_terminal_only_shows(text):
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    shown.encode()
