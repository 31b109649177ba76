"""Start a local cluster in a directory: ZooKeeper and brokers. Wait until every broker answers.

When the directory already holds a cluster, 'up' starts that cluster with its data. Options that are
not given (brokers, ports, settings) keep the values they had. Without --detach the command runs
until Ctrl-C and then shuts the whole cluster down cleanly.

examples:
  headrace up --dir ./cluster
  headrace up --dir ./cluster --brokers 1 --port 0 --detach
  headrace up --dir ./cluster --secure
  headrace up --dir ./cluster --registry
  headrace up --dir ./cluster --lake ./lake
  headrace up --dir ./cluster --set num.partitions=6 --set log.retention.hours=24
"""

import argparse
import sys
import time

from storage_engine.tools.arguments import add_directory, add_timeout
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.broker_settings import parse_setting
from storage_engine.tools.local.cluster_plan import DEFAULT_BROKERS, DEFAULT_PORT, UpRequest
from storage_engine.tools.local.console_process import HOW_TO_GET_IT, console_is_installed
from storage_engine.tools.local.lake.lake_process import HOW_TO_GET_IT as HOW_TO_GET_LAKE
from storage_engine.tools.local.lake.lake_process import absolute_root, lake_is_installed
from storage_engine.tools.local.local_cluster import START_TIMEOUT_S, LocalCluster
from storage_engine.tools.local.registry_process import HOW_TO_GET_IT as HOW_TO_GET_REGISTRY
from storage_engine.tools.local.registry_process import registry_is_installed
from storage_engine.tools.local.signals import signals_interrupt
from storage_engine.tools.table import report_line, write_line

_POLL_S = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace up`."""
    add_directory(parser)
    parser.add_argument(
        "--brokers",
        type=int,
        metavar="N",
        help=f"number of brokers (default: {DEFAULT_BROKERS}, or as many as the cluster already "
        "has)",
    )
    parser.add_argument(
        "--port",
        type=int,
        metavar="PORT",
        help="port of the first broker; the other brokers get the ports that follow. 0 chooses "
        f"free ports (default: {DEFAULT_PORT}, or the ports that the cluster already has)",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOSTS",
        help="use this ZooKeeper, as HOST:PORT[,HOST:PORT…][/PATH] (default: start an embedded "
        "ZooKeeper with the cluster)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of every broker, written to its server.properties; repeatable",
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="make a new cluster with TLS, log-ins and access rules: certificates in DIR/tls, the "
        "super user in DIR/admin.properties, and a user without rights in DIR/app.properties",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="return once the brokers answer, and leave the cluster running",
    )
    _add_beside(parser)
    add_timeout(
        parser, START_TIMEOUT_S, "give up when the brokers do not answer after this many seconds"
    )


def _add_beside(parser: argparse.ArgumentParser) -> None:
    """Add the options of what runs beside the brokers."""
    parser.add_argument(
        "--no-console",
        action="store_true",
        help="do not start the console, a web page that shows the cluster to this machine",
    )
    parser.add_argument(
        "--registry",
        action="store_true",
        help="start a schema registry, too, now and whenever this cluster is started; its address "
        "is 'registry' in DIR/cluster.json",
    )
    parser.add_argument(
        "--lake",
        metavar="DIR|URL",
        help="write topics with headrace.table.format=delta into Delta tables there, now and "
        "whenever this cluster is started ('headrace lake --help')",
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace up`."""
    if args.registry and not registry_is_installed():
        raise CommandError(HOW_TO_GET_REGISTRY)
    if args.lake and not lake_is_installed():
        raise CommandError(HOW_TO_GET_LAKE)
    request = UpRequest(
        brokers=args.brokers,
        port=args.port,
        zookeeper=args.zookeeper,
        settings=tuple(parse_setting(text) for text in args.set),
        is_secure=args.secure,
    )
    cluster = LocalCluster(args.dir, progress=report_line)
    with signals_interrupt():
        cluster.up(request, timeout_s=args.timeout)
        write_line(f"bootstrap servers: {cluster.bootstrap_servers}")
        urls = [entry.metrics_url for entry in cluster.state.brokers if entry.metrics_url]
        if urls:
            write_line(f"metrics: {' '.join(urls)}")
        if args.registry or cluster.state.registry is not None:
            write_line(f"registry: {cluster.open_registry()}")
        if args.lake or cluster.state.lake is not None:
            root = absolute_root(args.lake) if args.lake else None
            write_line(f"lake: {cluster.open_lake(root)}")
        if not args.no_console:
            _open_console(cluster)
        if args.detach:
            write_line(f"stop with: headrace down --dir {args.dir}")
            return 0
        report_line("Ctrl-C stops the cluster")
        sys.stdout.flush()
        return _run_until_stopped(cluster)


def _open_console(cluster: LocalCluster) -> None:
    """Open the console if possible; the cluster works without it, too."""
    if not console_is_installed():
        report_line(f"for a web page that shows the cluster: {HOW_TO_GET_IT}")
        return
    try:
        write_line(f"console: {cluster.open_console()}")
    except CommandError as error:
        report_line(str(error))


def _run_until_stopped(cluster: LocalCluster) -> int:
    try:
        while _something_runs(cluster):
            for line in cluster.note_ended():
                report_line(line)
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        report_line("stopping")
        try:
            cluster.down()
        except KeyboardInterrupt:
            report_line("stopping at once")
            cluster.down(timeout_s=0)
    else:
        report_line("another process has stopped the cluster")
    return 0


def _something_runs(cluster: LocalCluster) -> bool:
    state = cluster.state
    return state.zookeeper_pid is not None or any(entry.pid for entry in state.brokers)
