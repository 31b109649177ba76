"""Run a ZooKeeper server in the foreground, for production: alone, or one of an ensemble of three.

The server is the one that PySpark brings; it needs Java 17 or newer. The command becomes the
server's process, so that a supervisor's SIGTERM reaches it; warnings and errors go to stderr. The
directory has its data and its zoo.cfg, which each start writes anew. What you change there by hand
is not overwritten: the command then ends, and says what to do.

With --tls-keystore and --tls-truststore all ports speak TLS alone, and only those who show a
certificate of that authority are served. Without TLS whoever reaches a ZooKeeper may end the
sessions of all brokers: it listens on this machine only, unless --listen says otherwise.

examples:
  headrace zookeeper --dir /var/lib/headrace/zookeeper
  headrace zookeeper --dir /var/lib/headrace/zookeeper --id 1 --ensemble 1=h1,2=h2,3=h3 \\
      --tls-keystore /etc/headrace/zookeeper-1.pem --tls-truststore /etc/headrace/zookeeper-ca.pem
"""

import argparse
import os
import sys
from pathlib import Path

from storage_engine.tools.errors import UsageError
from storage_engine.tools.local.free_ports import HIGHEST_PORT
from storage_engine.tools.local.zookeeper_server import (
    DEFAULT_HEAP,
    DEFAULT_PORT,
    ServerRequest,
    prepare,
)
from storage_engine.tools.table import report_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace zookeeper`."""
    parser.add_argument(
        "--dir", required=True, type=Path, metavar="DIR", help="directory of the server's data"
    )
    parser.add_argument("--id", type=int, metavar="N", help="which server of the ensemble this is")
    parser.add_argument(
        "--ensemble",
        metavar="1=HOST,2=HOST,3=HOST",
        help="all servers of the ensemble, the same text for each; with other ports than 2888 and "
        "3888 as 1=HOST:PEER_PORT:ELECTION_PORT (default: a server of its own)",
    )
    parser.add_argument(
        "--client-port",
        type=int,
        default=DEFAULT_PORT,
        metavar="PORT",
        help=f"port for brokers and tools (default {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST",
        help="address of that port (default: every address with TLS, 127.0.0.1 without)",
    )
    parser.add_argument(
        "--tls-keystore",
        type=Path,
        metavar="FILE",
        help="PEM file with the server's key (PKCS#8, for its owner alone) and its certificate",
    )
    parser.add_argument(
        "--tls-truststore",
        type=Path,
        metavar="FILE",
        help="PEM file with the authority of those who may connect; take one that signs for "
        "ZooKeeper alone",
    )
    parser.add_argument(
        "--heap",
        default=DEFAULT_HEAP,
        metavar="SIZE",
        help=f"memory of the Java heap, such as 2g (default {DEFAULT_HEAP}, enough for 100,000 "
        "partitions)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of zoo.cfg, such as dataLogDir=/fast/zookeeper; repeatable",
    )
    parser.add_argument(
        "--keep-config",
        action="store_true",
        help="run with the zoo.cfg that is there, as you have changed it",
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace zookeeper`: never returns where the server starts."""
    if not 1 <= args.client_port <= HIGHEST_PORT:
        raise UsageError(
            f"--client-port {args.client_port} is impossible; give 1 to {HIGHEST_PORT}"
        )
    server = prepare(
        ServerRequest(
            directory=args.dir,
            id=args.id,
            ensemble=args.ensemble,
            port=args.client_port,
            listen=args.listen,
            keystore=args.tls_keystore,
            truststore=args.tls_truststore,
            heap=args.heap,
            settings=tuple(map(_setting, args.set)),
            keeps_config=args.keep_config,
        )
    )
    for warning in server.warnings:
        report_line(f"warning: {warning}")
    report_line(f"ZooKeeper starts on {server.place}, with its data in {args.dir}")
    sys.stdout.flush()
    os.umask(0o077)
    os.execv(server.command[0], server.command)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or "\n" in text:
        raise UsageError(f"'--set {text}' is not of the form KEY=VALUE")
    return key.strip(), value.strip()
