"""Sinks of a cluster whose brokers answer in different ways."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace_console.screens.waiting import NoSinksError, ask_sinks
from storage_engine.core.errors import UnsupportedVersionError
from storage_engine.protocol.apis.describe_sinks import DescribeSinksResponse

UNSERVED = [UnsupportedVersionError("not served")]


def asked(*answers: Any) -> Any:
    """What `ask_sinks` returns for brokers that answer so."""
    given = dict(enumerate(answers, 1))
    lines: Any = SimpleNamespace(ask=lambda *_args, **_options: given)
    snapshot: Any = SimpleNamespace(addresses=dict.fromkeys(given, ("host", 9092)))
    return ask_sinks(lines, snapshot)


def test_sinks_are_shown_where_one_broker_has_more_of_them_and_another_does_not_know_them() -> None:
    rows, silent = asked([DescribeSinksResponse(error_code=0, more=True, queries=[])], UNSERVED)
    assert rows == []
    assert [each["what"] for each in silent] == ["the rest of its sinks"]


def test_a_cluster_whose_brokers_do_not_know_sinks_has_none() -> None:
    with pytest.raises(NoSinksError):
        asked(UNSERVED, UNSERVED)
