"""Run a schema registry with Confluent's REST interface.

Its state is the topic _schemas of the cluster, in the format of Confluent's registry, so that one
that was copied from elsewhere is served as it is. Run several for one cluster: they elect one that
writes, and the others send changes on to it. On a cluster with log-ins, users log in by HTTP Basic
with their name and password, and subject T-key or T-value follows their rights on topic T.

The command needs the extra 'registry': pip install 'headrace[registry]'

examples:
  headrace registry --cluster ./cluster
  headrace registry --bootstrap-server 127.0.0.1:9092 --listen 127.0.0.1:8081
  headrace registry --bootstrap-server kafka.example:9093 --command-config registry.properties \\
      --listen 0.0.0.0:8081 --advertise registry-1.example:8081 \\
      --certificate registry-1.pem --key registry-1.key
  headrace registry --config registry.conf

--config names a properties file with the same settings, without the dashes:
  bootstrap-server=kafka.example:9093
  command-config=client.properties
  listen=0.0.0.0:8081
Options of the command line count above it.
"""

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from storage_engine.client.settings import read_properties
from storage_engine.core.errors import ConfigError
from storage_engine.tools.arguments import BOOTSTRAP_HELP, CONFIG_HELP
from storage_engine.tools.client_settings import file_settings, security_in
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.local.registry_process import HOW_TO_GET_IT, registry_is_installed
from storage_engine.tools.local.signals import signals_interrupt
from storage_engine.tools.table import report_line, write_line

if TYPE_CHECKING:
    from headrace_registry.registry_settings import RegistrySettings

_DEFAULTS = {"listen": "127.0.0.1:8081", "topic": "_schemas", "group": "schema-registry"}
_DEFAULT_SESSION_S = "10"
_OF_CLIENTS_ALONE = ("client.id", "request.timeout.ms", "default.api.timeout.ms")

_OPTIONS = {
    "cluster": ("DIR", "directory of a local cluster that 'headrace up' made"),
    "bootstrap-server": ("HOST:PORT", BOOTSTRAP_HELP),
    "command-config": (
        "FILE",
        f"{CONFIG_HELP}: what the registry itself logs in with (default with --cluster: the "
        "settings of the local cluster)",
    ),
    "listen": (
        "HOST:PORT",
        "address to listen on, with port 0 any free one (default 127.0.0.1:8081); one that other "
        "machines reach needs --certificate and --key where users log in",
    ),
    "advertise": (
        "HOST:PORT",
        "address under which the other registries reach this one (default: that of --listen)",
    ),
    "certificate": ("FILE", "certificate chain, PEM"),
    "key": ("FILE", "the certificate's key, PEM"),
    "ca": (
        "FILE",
        "certificates by which the certificate of the registry that writes is checked, PEM "
        "(default: the system's)",
    ),
    "topic": ("NAME", "topic of the schemas, made where it is not there (default _schemas)"),
    "group": (
        "NAME",
        "group in which registries elect the one that writes (default schema-registry)",
    ),
    "session-timeout": (
        "SECONDS",
        "a registry that is silent for so long writes no more (default 10)",
    ),
    "never-write": (
        "",
        "never be the one that writes: for a registry that the others can't reach",
    ),
    "without-typed-topics": (
        "",
        "do not register the schemas of typed topics: for a second registry of a cluster",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace registry`."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="properties file with the settings below"
    )
    for name, (what, words) in _OPTIONS.items():
        if what:
            parser.add_argument(f"--{name}", metavar=what, help=words)
        else:
            parser.add_argument(
                f"--{name}", action="store_const", const="true", help=words, default=None
            )


def run(args: argparse.Namespace) -> int:
    """Run `headrace registry`."""
    if not registry_is_installed():
        raise CommandError(HOW_TO_GET_IT)
    from headrace_registry.server import RegistryServer

    settings, config = _settings(_given(args))
    producer_security = {
        key: value for key, value in file_settings(config).items() if key not in _OF_CLIENTS_ALONE
    }
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    with signals_interrupt():
        try:
            RegistryServer(settings, producer_security, on_ready=_report).run()
        except KeyboardInterrupt:
            return 0
    return 0


def _report(url: str) -> None:
    write_line(f"registry: {url}")
    report_line("Ctrl-C stops the registry")
    sys.stdout.flush()


def _given(args: argparse.Namespace) -> dict[str, str]:
    """The settings of the file, and above them those of the command line."""
    given = {} if args.config is None else read_properties(args.config)
    for name in given:
        if name not in _OPTIONS:
            raise ConfigError(
                f"{args.config}: '{name}' is not a setting of the registry; "
                "'headrace registry --help' lists them"
            )
    told = {name: getattr(args, name.replace("-", "_")) for name in _OPTIONS}
    if told["cluster"] is not None or told["bootstrap-server"] is not None:
        given.pop("cluster", None)
        given.pop("bootstrap-server", None)
    return {**_DEFAULTS, **given, **{name: value for name, value in told.items() if value}}


def _settings(given: dict[str, str]) -> "tuple[RegistrySettings, Path | None]":
    """The settings, and the file with those of the connection."""
    from headrace_registry.registry_settings import RegistrySettings

    servers, directory = given.get("bootstrap-server"), given.get("cluster")
    if (servers is None) == (directory is None):
        raise UsageError("give one of --cluster and --bootstrap-server")
    config = _path(given, "command-config")
    if directory is not None:
        cluster = LocalCluster(Path(directory))
        servers = cluster.bootstrap_servers
        config = config or cluster.admin_config(cluster.state)
    assert servers is not None
    host, port = _address(given["listen"], "--listen", least=0)
    advertised_host, advertised_port = (
        _address(given["advertise"], "--advertise", least=1)
        if "advertise" in given
        else (None, None)
    )
    return (
        RegistrySettings(
            bootstrap_servers=servers,
            security=security_in(config),
            host=host,
            port=port,
            advertised_host=advertised_host,
            advertised_port=advertised_port,
            certificate=_path(given, "certificate"),
            key=_path(given, "key"),
            ca=_path(given, "ca"),
            topic=given["topic"],
            group=given["group"],
            session_timeout_ms=_milliseconds(given.get("session-timeout", _DEFAULT_SESSION_S)),
            may_write=given.get("never-write", "false").lower() != "true",
            has_typed_topics=given.get("without-typed-topics", "false").lower() != "true",
        ),
        config,
    )


def _path(given: dict[str, str], name: str) -> Path | None:
    return Path(given[name]) if given.get(name) else None


def _address(text: str, option: str, *, least: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and least <= int(port) < 65_536
    if not colon or not host or not is_port:
        raise UsageError(f"{option} '{text}' is not HOST:PORT; give for example 127.0.0.1:8081")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _milliseconds(text: str) -> int:
    try:
        return int(float(text) * 1000)
    except (ValueError, OverflowError):
        raise UsageError(f"--session-timeout '{text}' is no number of seconds") from None
