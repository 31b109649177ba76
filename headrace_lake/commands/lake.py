"""Write topics into Delta tables, each record exactly once, and show how far the tables are.

A topic is written into a table once it has the setting headrace.table.format=delta; its table is
DIR/TOPIC below the root of the lake, or where headrace.table.location says. Run several instances
for one cluster: they share the partitions, and take over from each other. What was read and is in
no commit is read again by whoever goes on, so an instance can be killed at any time.

The command needs the extra 'lake': pip install 'headrace[lake]'

actions:
  run     write tables until Ctrl-C
  status  show each table: how far it is, its lag, its files, and why it stands still

examples:
  headrace lake run --cluster ./cluster --root ./lake
  headrace topics create clicks --bootstrap-server 127.0.0.1:9092 \\
      --config headrace.table.format=delta --config headrace.table.commit.interval.ms=5000
  headrace lake status --cluster ./cluster
  headrace lake run --bootstrap-server kafka.example:9092 --root s3://bucket/lake --config lake.conf

--config names a properties file with the same settings, without the dashes, with tables that no
topic setting names, and with options of the object store:
  bootstrap-server=kafka.example:9093
  command-config=client.properties
  root=s3://bucket/lake
  table.orders.location=/mnt/tables/orders
  table.orders.partition.by=country
  store.aws_region=eu-central-1
Options of the command line count above it, and it counts above the settings of topics.
"""

import argparse
import logging
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from storage_engine.client.settings import read_properties
from storage_engine.core.errors import ConfigError
from storage_engine.tools.actions import Actions
from storage_engine.tools.arguments import BOOTSTRAP_HELP, CONFIG_HELP, add_json
from storage_engine.tools.client_settings import file_settings, security_in
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local.lake.lake_process import (
    HOW_TO_GET_IT,
    absolute_root,
    lake_is_installed,
)
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.local.signals import signals_ask
from storage_engine.tools.table import print_rows, report_line, write_line

if TYPE_CHECKING:
    from headrace_lake.lake_settings import LakeSettings

_OPTIONS = {
    "cluster": ("DIR", "directory of a local cluster that 'headrace up' made"),
    "bootstrap-server": ("HOST:PORT", BOOTSTRAP_HELP),
    "command-config": (
        "FILE",
        f"{CONFIG_HELP} (default with --cluster: the settings of the local cluster)",
    ),
    "root": (
        "DIR|URL",
        "where the tables of topics are, such as ./lake or s3://bucket/lake; topic settings can't "
        "name a place outside of it (default with --cluster: that of 'headrace up --lake')",
    ),
    "group": ("NAME", "consumer group in which instances share partitions (default headrace-lake)"),
}
_OF_RUN = {
    "session-timeout": (
        "SECONDS",
        "an instance that is silent for so long gives its partitions to others (default 10)",
    ),
    "memory": ("MIB", "memory of this instance, whatever topics hold (default 512)"),
    "metrics": (
        "HOST:PORT",
        "address at which metrics for Prometheus are given (default: none are)",
    ),
}
_TABLE, _STORE = "table.", "store."
_OF_CLIENTS_ALONE = ("client.id",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace lake`: each action has its own."""
    actions = Actions(parser, "lake")
    _add(actions, "run", "write tables until Ctrl-C", {**_OPTIONS, **_OF_RUN})
    add_json(_add(actions, "status", "show each table", _OPTIONS))


def _add(
    actions: Actions, name: str, summary: str, options: dict[str, tuple[str, str]]
) -> argparse.ArgumentParser:
    parser = actions.add(name, lambda *_: None, summary, asks_brokers=False)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="properties file with the settings below"
    )
    for option, (what, words) in options.items():
        parser.add_argument(f"--{option}", metavar=what, help=words)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run `headrace lake`."""
    if not lake_is_installed():
        raise CommandError(HOW_TO_GET_IT)
    settings, config = _settings(args)
    return _run(settings, config) if args.action == "run" else _status(settings, config, args.json)


def _run(settings: "LakeSettings", config: Path | None) -> int:
    # Before Arrow is loaded: its own pool keeps twice as much as is in use, for rows that are read
    # in one thread and freed in others.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from headrace_lake.service.lake_service import LakeService
    from headrace_lake.service.metrics import serve_metrics

    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr
    )
    service = LakeService(settings, security_in(config))
    with closing(service), signals_ask(service.stop):
        if settings.metrics is not None:
            write_line(f"metrics: {serve_metrics(settings.metrics, service)}")
        report_line("Ctrl-C commits what was read, and stops the lake")
        sys.stdout.flush()
        service.run()
    return 0


def _status(settings: "LakeSettings", config: Path | None, as_json: bool) -> int:
    from headrace_lake.service.lake_status import table_reports

    columns = (
        "topic",
        "state",
        ("lag", "lag_records"),
        ("lag s", "lag_s"),
        "rows",
        "files",
        ("last commit", "last_commit"),
        "location",
    )
    reports = table_reports(settings, security_in(config))
    print_rows(columns, [each.document() for each in reports], as_json=as_json)
    if not as_json:
        for each in reports:
            if each.line:
                write_line(f"{each.topic}: {each.line}")
    return 0


def _settings(args: argparse.Namespace) -> "tuple[LakeSettings, Path | None]":
    """The settings, and the file with those of the connection."""
    from headrace_lake.lake_settings import LakeSettings, tables_of_file

    of_file = {} if args.config is None else read_properties(args.config)
    given = _given(args, of_file)
    servers, directory = given.get("bootstrap-server"), given.get("cluster")
    if (servers is None) == (directory is None):
        raise UsageError("give one of --cluster and --bootstrap-server")
    config = Path(given["command-config"]) if given.get("command-config") else None
    if directory is not None:
        cluster = LocalCluster(Path(directory))
        servers = cluster.bootstrap_servers
        state = cluster.state
        config = config or cluster.admin_config(state)
        if state.lake is not None:
            given.setdefault("root", state.lake.root)
    assert servers is not None
    client = {
        key: value for key, value in file_settings(config).items() if key not in _OF_CLIENTS_ALONE
    }
    defaults = LakeSettings(bootstrap_servers=servers)
    settings = LakeSettings(
        bootstrap_servers=servers,
        client=client,
        root=absolute_root(given["root"]) if "root" in given else None,
        tables=tables_of_file(of_file, args.config),
        store={
            name.removeprefix(_STORE): text
            for name, text in of_file.items()
            if name.startswith(_STORE)
        },
        group=given.get("group", defaults.group),
        session_timeout_ms=_milliseconds(given["session-timeout"])
        if "session-timeout" in given
        else defaults.session_timeout_ms,
        memory_bytes=_memory(given["memory"]) if "memory" in given else defaults.memory_bytes,
        metrics=_address(given["metrics"]) if "metrics" in given else None,
    )
    return settings, config


def _given(args: argparse.Namespace, of_file: dict[str, str]) -> dict[str, str]:
    """The settings of the file, and above them those of the command line."""
    names = {**_OPTIONS, **_OF_RUN}
    for name in of_file:
        if name not in names and not name.startswith((_TABLE, _STORE)):
            raise ConfigError(
                f"{args.config}: '{name}' is not a setting of the lake; "
                "'headrace lake run --help' lists them"
            )
    given = {name: text for name, text in of_file.items() if name in names}
    told = {name: getattr(args, name.replace("-", "_"), None) for name in names}
    if told["cluster"] is not None or told["bootstrap-server"] is not None:
        given.pop("cluster", None)
        given.pop("bootstrap-server", None)
    return {**given, **{name: text for name, text in told.items() if text}}


def _memory(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise UsageError(f"--memory '{text}' is no whole number of MiB; give for example 512")
    return int(text) << 20


def _milliseconds(text: str) -> int:
    try:
        return int(float(text) * 1000)
    except (ValueError, OverflowError):
        raise UsageError(f"--session-timeout '{text}' is no number of seconds") from None


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and int(port) < 65_536
    if not colon or not host or not is_port:
        raise UsageError(f"--metrics '{text}' is not HOST:PORT; give for example 127.0.0.1:9480")
    return host.removeprefix("[").removesuffix("]"), int(port)
