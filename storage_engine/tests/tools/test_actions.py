"""The actions of a command, each with its own arguments."""

import argparse

import pytest

from storage_engine.tools.actions import Actions


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    actions = Actions(parser, "things")
    actions.add("list", print, "list things", "list --all").add_argument("--all")
    actions.add("move", print, "move things", "move --bootstrap-server a:1")
    actions.add("plan", print, "plan moves", asks_brokers=False)
    return parser


def help_of(parser, capsys, action: str) -> str:
    with pytest.raises(SystemExit):
        parser.parse_args([action, "--help"])
    return str(capsys.readouterr().out)


def test_an_example_has_the_brokers_once(parser, capsys):
    assert "headrace things list --all --bootstrap-server 127.0.0.1:9092\n" in help_of(
        parser, capsys, "list"
    )
    assert "headrace things move --bootstrap-server a:1\n" in help_of(parser, capsys, "move")
    told = " ".join(help_of(parser, capsys, "plan").split())
    assert "Plan moves. 'headrace things --help' has examples." in told
    assert "--bootstrap-server" not in told


def test_the_action_that_was_chosen_is_carried_out_with_its_own_arguments(parser):
    args = parser.parse_args(["list", "--bootstrap-server", "a:1", "--all", "x"])
    assert (args.act, args.all, args.bootstrap_server) == (print, "x", "a:1")
    for wrong in ([], ["lists"], ["list"], ["list", "--boot", "a:1"]):
        with pytest.raises(SystemExit) as caught:
            parser.parse_args(wrong)
        assert caught.value.code == 2
