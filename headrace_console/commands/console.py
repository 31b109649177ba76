"""Run the console: a web page that shows and changes a cluster.

The console shows brokers, topics with their messages, groups, Spark's queries, and problems. On a
cluster with log-ins, users log in at the console with their name and password, and see and change
only what their access rules allow. The console listens on 127.0.0.1, unless --address names another
address, which needs TLS and a log-in.

The command needs the extra 'console': pip install 'headrace[console]'

examples:
  headrace console --cluster ./cluster
  headrace console --bootstrap-servers 127.0.0.1:9092 --port 0 --read-only
  headrace console --bootstrap-servers kafka.example:9093 --command-config client.properties \\
      --address 0.0.0.0 --certificate console.pem --key console.key \\
      --allowed-host kafka.example:8480
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import Secret
from storage_engine.tools.arguments import (
    BOOTSTRAP_HELP,
    CONFIG_HELP,
    natural_number,
    positive_seconds,
)
from storage_engine.tools.client_settings import security_in
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.inspection.state_change_log import FILE_NAME, newest_state_changes
from storage_engine.tools.local.console_process import HOW_TO_GET_IT, console_is_installed
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.local.signals import signals_interrupt
from storage_engine.tools.registry_address import registry_at
from storage_engine.tools.table import report_line, write_line

if TYPE_CHECKING:
    from headrace_console.console_settings import ConsoleSettings
    from headrace_console.screens.timeline import LoggedChange, StateChangeSource

_MOST_LOG_BYTES = 512 << 10
"""The bytes read from the end of each broker's newest state-change log: a page waits for them."""
_MOST_CHANGES = 5_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace console`."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--cluster",
        "--dir",
        dest="directory",
        type=Path,
        metavar="DIR",
        help="directory of a local cluster that 'headrace up' made",
    )
    which.add_argument(
        "--bootstrap-servers",
        "--bootstrap-server",
        dest="bootstrap_servers",
        metavar="HOST:PORT",
        help=BOOTSTRAP_HELP,
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help=f"{CONFIG_HELP}; of the log-in only sasl.mechanism is used, since users log in at the "
        "console (default with --cluster: the settings of the local cluster)",
    )
    _add_listening(parser)
    parser.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="file with the console's own password, for a cluster without log-ins",
    )
    parser.add_argument(
        "--progress-token-file",
        type=Path,
        metavar="FILE",
        help="file with the token that Spark queries send with their progress; needed on a cluster "
        "with log-ins",
    )
    parser.add_argument(
        "--registry",
        metavar="URL",
        help="schema registry whose subjects are shown and by whose schemas messages are read, "
        "several instances with commas; users of a cluster with log-ins log in there, too (default "
        "with --cluster: the registry of the local cluster)",
    )
    parser.add_argument("--read-only", action="store_true", help="allow no change of the cluster")
    _add_thresholds(parser)


def _add_listening(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=int, default=8480, metavar="PORT", help="0: any free port (default 8480)"
    )
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default 127.0.0.1); an address that other machines reach needs "
        "--certificate, --key, and a log-in",
    )
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="certificate chain, PEM")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the certificate's key, PEM")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="another host and port in the URL under which browsers reach the console; repeatable",
    )
    parser.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address of a reverse proxy whose X-Forwarded-For names the browser's address, by "
        "which failed log-ins are counted; repeatable",
    )


def _add_thresholds(parser: argparse.ArgumentParser) -> None:
    for option, default, meaning in (
        ("--stuck-after", 60.0, "report a transaction that holds up readers for this long"),
        ("--lag-after", 60.0, "report a query that needs this long to read its lag"),
    ):
        parser.add_argument(
            option,
            type=positive_seconds,
            default=default,
            metavar="SECONDS",
            help=f"{meaning} (default {default:.0f})",
        )
    parser.add_argument(
        "--disk-full-percent",
        type=_percent,
        default=90.0,
        metavar="PERCENT",
        help="report a disk of which this share is used (default 90)",
    )
    parser.add_argument(
        "--certificate-days",
        type=natural_number,
        default=30,
        metavar="DAYS",
        help="report a broker's certificate that expires within this many days (default 30)",
    )


def _percent(text: str) -> float:
    """Return a percentage above 0 and of at most 100."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0 and of at most 100")
    return value


def run(args: argparse.Namespace) -> int:
    """Run `headrace console`."""
    if not console_is_installed():
        raise CommandError(HOW_TO_GET_IT)
    from headrace_console.server import ConsoleServer

    settings, state_changes = _settings(args)
    with signals_interrupt():
        try:
            ConsoleServer(settings, state_changes=state_changes, on_ready=_report).run()
        except KeyboardInterrupt:
            return 0
    return 0


def _report(url: str) -> None:
    write_line(f"console: {url}")
    report_line("Ctrl-C stops the console")
    sys.stdout.flush()


def _settings(
    args: argparse.Namespace,
) -> "tuple[ConsoleSettings, StateChangeSource | None]":
    from headrace_console.console_settings import ConsoleSettings, Thresholds

    servers, config, name, source = args.bootstrap_servers, args.command_config, None, None
    registry = args.registry
    if args.directory is not None:
        cluster = LocalCluster(args.directory)
        state = cluster.state
        servers, name = state.bootstrap_servers, cluster.directory.name
        config = config or cluster.admin_config(state)
        registry = registry or (None if state.registry is None else state.registry.url)
        source = _logged_changes(
            (cluster.directory / entry.log_file).parent for entry in state.brokers
        )
    security = _without_password(security_in(config))
    if not 0 <= args.port < 65_536:
        raise UsageError(f"--port {args.port} is not a port: give a number from 0 to 65535")
    return (
        ConsoleSettings(
            bootstrap_servers=servers,
            security=security,
            registry=None if registry is None else registry_at(registry, security),
            address=args.address,
            port=args.port,
            certificate=args.certificate,
            key=args.key,
            password=_secret(args.password_file, "--password-file"),
            progress_token=_secret(args.progress_token_file, "--progress-token-file"),
            allowed_hosts=tuple(each.lower() for each in args.allowed_host),
            trusted_proxies=tuple(args.trusted_proxy),
            read_only=args.read_only,
            cluster_name=name,
            thresholds=Thresholds(
                stuck_after_ms=int(args.stuck_after * 1000),
                lag_after_ms=int(args.lag_after * 1000),
                disk_full_percent=args.disk_full_percent,
                certificate_days=args.certificate_days,
            ),
        ),
        source,
    )


def _secret(path: Path | None, option: str) -> Secret | None:
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
        raise ConfigError(f"{option} {path}: {reason}") from None
    if not text:
        raise ConfigError(f"{option} {path}: the file is empty")
    if mode & 0o077:
        raise ConfigError(
            f"{option} {path}: other users of this machine may read the file; run: chmod 600 {path}"
        )
    return Secret(text)


def _without_password(security: ClientSecurity | None) -> ClientSecurity | None:
    """Users log in themselves, so the console keeps nobody's password."""
    if security is None or security.sasl is None:
        return security
    return replace(security, sasl=replace(security.sasl, username="", password=None))


def _logged_changes(folders: Iterable[Path]) -> "StateChangeSource":
    """Return a source that reads the brokers' local state-change logs whenever they have grown."""
    from headrace_console.screens.timeline import LoggedChange

    files = [folder / FILE_NAME for folder in folders]
    before: tuple[list[tuple[int, int]], list[LoggedChange]] = [], []

    def newest() -> "list[LoggedChange]":
        nonlocal before
        stamps = [_stamp(file) for file in files]
        if stamps != before[0]:
            before = stamps, read()
        return before[1]

    def read() -> "list[LoggedChange]":
        changes = [
            change for file in files for change in newest_state_changes(file, _MOST_LOG_BYTES)
        ]
        changes.sort(key=lambda change: change.time)
        return [
            LoggedChange(int(each.time.timestamp() * 1000), each.broker, each.partition, each.text)
            for each in changes[-_MOST_CHANGES:]
        ]

    return newest


def _stamp(file: Path) -> tuple[int, int]:
    """Return the size and time of modification, which differ when the file has grown."""
    try:
        status = file.stat()
    except OSError:
        return (0, 0)
    return (status.st_size, status.st_mtime_ns)
