"""Connections to brokers: one error does not last."""

from typing import Any

import pytest

from headrace_console.cluster import broker_lines
from headrace_console.cluster.broker_lines import BrokerLines
from storage_engine.core.errors import HeadraceError


@pytest.mark.usefixtures("no_thread_is_left")
def test_an_answer_that_breaks_the_console_silences_its_broker_only_once(monkeypatch) -> None:
    answers = [ValueError("no such field"), ["well"]]

    def exchange(*_: Any) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(broker_lines._Line, "exchange", exchange)
    lines = BrokerLines(None)
    try:
        asked: Any = {1: []}, {1: ("127.0.0.1", 1)}
        first = lines.ask(*asked, timeout_ms=2_000)[1]
        assert isinstance(first, HeadraceError) and "could not be read" in str(first)
        assert lines.ask(*asked, timeout_ms=2_000)[1] == ["well"]
    finally:
        lines.close()
