"""The display keeps one line of progress on a terminal, and few lines elsewhere."""

import io
import re

from examples.flights.display import Display


class Terminal(io.StringIO):
    def isatty(self):
        return True


def without_times(text):
    return re.sub(r" *[0-9.]+ s  ", "", text)


def test_on_a_terminal_progress_is_rewritten_and_gone_before_an_event():
    out = Terminal()
    display = Display(out)
    display.progress(1, 4, "loaded 1")
    display.event("broker killed")
    first, blank, event = out.getvalue().split("\r")[1:]
    assert without_times(first) == "[#####...............]  25% loaded 1"
    assert blank == " " * len(first)
    assert without_times(event) == "broker killed\n"


def test_elsewhere_progress_is_a_line_now_and_then():
    out = io.StringIO()
    display = Display(out)
    for done in range(3):
        display.progress(done, 4, f"loaded {done}")
    assert without_times(out.getvalue()) == "[....................]   0% loaded 0\n"


def test_a_table_aligns_its_values():
    out = io.StringIO()
    Display(out).table("Title", [("a", "1"), ("long", "2")])
    assert out.getvalue() == "\nTitle\n  a     1\n  long  2\n"
