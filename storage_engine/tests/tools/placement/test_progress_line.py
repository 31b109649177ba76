"""Progress: one line on a terminal, few lines where they stay."""

import io
import time

from storage_engine.tools.placement.progress_line import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_one_line_that_changes():
    shown = Terminal()
    line = ProgressLine(shown)
    for text in ("1 of 3", "1 of 3", "2 of 3"):
        line.tell(text)
    line.keep("done")
    assert shown.getvalue() == "\r\x1b[K1 of 3\r\x1b[K2 of 3\r\x1b[Kdone\n"


def test_lines_that_stay_come_now_and_then(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    shown = io.StringIO()
    line = ProgressLine(shown)
    for at_s in range(25):
        now_s[0] = float(at_s)
        line.tell(f"{at_s} of 25")
    line.keep("done")
    assert shown.getvalue().splitlines() == ["0 of 25", "10 of 25", "20 of 25", "done"]


def test_names_do_not_write_to_the_terminal():
    shown = Terminal()
    ProgressLine(shown).tell("topic \x1b[2J")
    assert shown.getvalue() == "\r\x1b[Ktopic \\x1b[2J"
