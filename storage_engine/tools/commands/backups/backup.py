"""Copy a running cluster into a folder or an object store: records, offsets, settings, users.

A backup is the cluster at one moment: each transaction is in all of its partitions or in none, and
no group's offset lies beyond the records. The first one copies everything, each later one what is
new. A backup that is interrupted leaves the earlier ones as they were; run the command again.

The files hold records and, unless --without-secrets is given, the salted hashes of users'
passwords. In a folder they are for their owner alone.

The command reads topics as a client, so its user needs Read and DescribeConfigs on all topics,
those of the brokers included, and it reads ZooKeeper as a broker does, by the settings of one:
--broker-config. With --dir both are taken from the local cluster.

examples:
  headrace backup --to /backups/east --dir ./cluster
  headrace backup --to s3://bucket/east --bootstrap-server east:9092 \\
      --command-config admin.properties --broker-config /etc/headrace/server.properties
  headrace backup --to /backups/east --list
  headrace backup --to /backups/east --prune 7
"""

import argparse
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from storage_engine.backup import catalog
from storage_engine.backup.errors import BackupError
from storage_engine.backup.maker import BackupMaker
from storage_engine.backup.manifest import Manifest
from storage_engine.backup.reading import Throttle
from storage_engine.backup.store import BackupStore
from storage_engine.backup.znodes import connected, read_nodes
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.zookeeper_access import zookeeper_access
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.backup_arguments import (
    RunningCluster,
    add_cluster,
    add_place,
    cluster_in,
    place_in,
)
from storage_engine.tools.document import Json
from storage_engine.tools.errors import UsageError
from storage_engine.tools.local.signals import signals_interrupt
from storage_engine.tools.placement.progress_line import ProgressLine
from storage_engine.tools.table import print_json, print_rows, write_line

_COLUMNS = ("backup", "taken", "cluster", "topics", "partitions", "bytes", "new_bytes", "secrets")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace backup`."""
    add_place(parser, "--to")
    add_cluster(parser)
    parser.add_argument(
        "--broker-config",
        type=Path,
        metavar="FILE",
        help="server.properties of a broker of the cluster, for zookeeper.connect and the way to "
        "log in there",
    )
    parser.add_argument(
        "--without-secrets",
        action="store_true",
        help="leave out users' credentials and passwords in settings: users are to be made anew "
        "after a restore",
    )
    parser.add_argument(
        "--throttle",
        type=positive_integer,
        metavar="BYTES",
        help="read so many bytes a second at most (default: as fast as possible)",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--list", action="store_true", help="show the backups that are there, and make none"
    )
    action.add_argument(
        "--prune",
        type=positive_integer,
        metavar="N",
        help="delete all backups but the newest N, and files that none of these needs",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace backup`."""
    store = place_in(args)
    if args.list:
        _list(store, as_json=args.json)
        return 0
    if args.prune is not None:
        _prune(store, args.prune, as_json=args.json)
        return 0
    target = cluster_in(args)
    if target is None:
        raise UsageError("give --dir, or --bootstrap-server and --broker-config")
    if target.broker_config is None:
        raise UsageError(
            "--bootstrap-server needs --broker-config, the server.properties of one of its brokers"
        )
    with signals_interrupt():
        manifest = _make(args, store, target, target.broker_config)
    if args.json:
        print_json(_row(manifest))
    else:
        write_line(
            f"backup {manifest.number} of {len(manifest.topics)} topics is in {store.url}, "
            f"{manifest.new_bytes} bytes of it new; check it with: headrace verify --from "
            f"{args.place}"
        )
    return 0


def _make(
    args: argparse.Namespace, store: BackupStore, target: RunningCluster, broker_config: Path
) -> Manifest:
    config = BrokerConfig.load(broker_config)
    access = zookeeper_access(config)
    line = ProgressLine()
    with (
        target.connect() as cluster,
        connected(config.zookeeper_connect, access) as client,
    ):
        maker = BackupMaker(
            cluster,
            store,
            partial(read_nodes, client, with_secrets=not args.without_secrets),
            has_secrets=not args.without_secrets,
            throttle=Throttle(args.throttle),
            tell=line.tell,
        )
        return maker.make()


def _list(store: BackupStore, *, as_json: bool) -> None:
    rows = [_row(catalog.read_manifest(store, number)) for number in catalog.numbers(store)]
    print_rows([(each.replace("_", " "), each) for each in _COLUMNS], rows, as_json=as_json)


def _row(manifest: Manifest) -> dict[str, Json]:
    return {
        "backup": manifest.number,
        "taken": datetime.fromtimestamp(manifest.ended_ms / 1000, UTC).isoformat(
            timespec="seconds"
        ),
        "cluster": manifest.cluster_id,
        "topics": len(manifest.topics),
        "partitions": sum(len(topic.partitions) for topic in manifest.topics),
        "bytes": sum(file.size for file in manifest.files),
        "new_bytes": manifest.new_bytes,
        "secrets": manifest.has_secrets,
    }


def _prune(store: BackupStore, keep: int, *, as_json: bool) -> None:
    if not catalog.numbers(store):
        raise BackupError(f"there is no backup in {store.url}: nothing was deleted")
    gone, files = catalog.prune(store, keep)
    if as_json:
        print_json({"backups": gone, "files": files})
    else:
        names = ", ".join(map(str, gone)) or "none"
        write_line(f"deleted backups: {names}; deleted files: {files}")
