"""The actions of a command, such as `headrace topics create`: each has arguments of its own."""

import argparse
from collections.abc import Callable

from storage_engine.tools.arguments import add_bootstrap_server
from storage_engine.tools.client_settings import connect

_BROKERS = "--bootstrap-server"


class Actions:
    """Declares the actions of one command."""

    def __init__(self, parser: argparse.ArgumentParser, command: str) -> None:
        self._actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        self._command = command

    def add(
        self,
        name: str,
        act: Callable[..., None],
        summary: str,
        example: str | None = None,
        *,
        asks_brokers: bool = True,
    ) -> argparse.ArgumentParser:
        """`act` carries the action out. `example` is a command line without `headrace COMMAND`;
        None where the help of the whole command has the examples. Without `asks_brokers` the caller
        adds the options of a connection."""
        about = f"{summary[0].upper()}{summary[1:]}."
        if example is None:
            about += f" 'headrace {self._command} --help' has examples."
        else:
            brokers = "" if _BROKERS in example else f" {_BROKERS} 127.0.0.1:9092"
            about += f"\n\nexample:\n  headrace {self._command} {example}{brokers}"
        parser = self._actions.add_parser(
            name,
            help=summary,
            description=about,
            formatter_class=argparse.HelpFormatter
            if example is None
            else argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if asks_brokers:
            add_bootstrap_server(parser)
        parser.set_defaults(act=act)
        return parser


def act_on_cluster(args: argparse.Namespace) -> int:
    """Carry out the chosen action on the cluster that the options name."""
    with connect(args.bootstrap_server, args.command_config) as cluster:
        args.act(cluster, args)
    return 0
