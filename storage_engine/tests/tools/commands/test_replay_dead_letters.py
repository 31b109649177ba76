"""`headrace replay-dead-letters`: what it prints, and that a dry run sends nothing."""

import json

import pytest

from storage_engine.tests.letter_replay.dead_letters import (
    DEAD,
    Coordinator,
    add_letters,
    values_in,
)
from storage_engine.tools.cli import main


@pytest.fixture
def letters(fake) -> Coordinator:
    fake.add_topic(DEAD, [1])
    fake.add_topic("orders", [2])
    coordinator = Coordinator(fake)
    add_letters(fake, ("orders", 0, b"bad"), (None, 0, b"bad"), ("orders", 0, b"late"))
    return coordinator


def replay(fake, *arguments: str) -> int:
    return main(
        ["replay-dead-letters", DEAD, "--bootstrap-server", fake.bootstrap_servers, *arguments]
    )


def test_a_dry_run_shows_what_would_be_sent_and_sends_nothing(fake, letters, capsys):
    assert replay(fake, "--dry-run") == 0
    *table, summary = capsys.readouterr().out.splitlines()
    assert [line.split() for line in table[1:]] == [["orders", "bad", "1"], ["orders", "late", "1"]]
    assert summary == (
        "2 of 3 letters selected, none sent: --dry-run; 1 do not say where they came from"
    )
    assert letters.commits == []


def test_a_run_is_told_as_json_with_what_it_has_sent(fake, letters, capsys):
    assert replay(fake, "--reason", "bad", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "dry_run": False,
        "waiting": 3,
        "selected": 1,
        "without_origin": 1,
        "sent": 1,
        "kinds": [{"topic": "orders", "reason": "bad", "letters": 1}],
    }
    assert values_in(fake, "orders") == [b"0"]


@pytest.mark.parametrize("wrong", [["--limit", "0"], ["--since", "yesterday"]])
def test_wrong_usage_is_told(fake, wrong, capsys):
    with pytest.raises(SystemExit) as caught:
        replay(fake, *wrong)
    assert caught.value.code == 2
    assert wrong[0] in capsys.readouterr().err
