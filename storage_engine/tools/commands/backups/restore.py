"""Restore a backup into an empty cluster whose brokers do not run.

Records keep their offsets, so that the offsets of groups fit; topics keep their ids and settings.
Users, access rules, quotas and levels of features are those of the backup; what the empty cluster
has already, such as the users of `headrace up --secure`, stays. The cluster has an id of its own,
and its leader epochs lie above those of the backup, so that whoever has read more than the backup
has is told (docs/backup.md).

With --dir the cluster is local: it is made, with the brokers of the backup, where DIR is empty.
Else name the server.properties of the brokers of this machine, with --broker-config for each, and
run the command on each machine; the last one writes ZooKeeper's part. Start brokers only after
that. A restore that is interrupted is run again, with the same arguments.

examples:
  headrace restore --from /backups/east --dir ./restored
  headrace up --dir ./restored --detach
  headrace verify --from /backups/east --dir ./restored

  headrace restore --from s3://bucket/east --brokers 1,2,3 --broker-config broker-1.properties
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from storage_engine.backup.catalog import read_manifest
from storage_engine.backup.manifest import Manifest
from storage_engine.backup.restored_nodes import topics_in
from storage_engine.backup.restorer import Restored, read_nodes_of, restore
from storage_engine.backup.store import BackupStore
from storage_engine.backup.znodes import connected
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.zookeeper_access import zookeeper_access
from storage_engine.core.ids import BrokerId
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.backup_arguments import add_place, place_in
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local import cluster_file
from storage_engine.tools.local.cluster_plan import UpRequest, parse_zookeeper_hosts
from storage_engine.tools.local.directory_lock import directory_lock
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.local.signals import signals_interrupt
from storage_engine.tools.placement.progress_line import ProgressLine
from storage_engine.tools.table import print_json, write_line
from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.embedded import start_embedded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace restore`."""
    add_place(parser, "--from")
    parser.add_argument(
        "--backup",
        type=positive_integer,
        metavar="N",
        help="number of the backup (default: the newest; headrace backup --list shows all)",
    )
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="directory of the local cluster to restore into"
    )
    parser.add_argument(
        "--broker-config",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="server.properties of a broker of this machine; repeatable",
    )
    parser.add_argument(
        "--brokers",
        type=broker_ids,
        metavar="ID[,ID…]",
        help="ids of all brokers of the new cluster (default: those of --broker-config)",
    )
    add_json(parser)


def broker_ids(text: str) -> tuple[BrokerId, ...]:
    """The ids between the commas of `--brokers`."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of broker ids, such as 1,2,3")
    return tuple(sorted({BrokerId(int(part)) for part in parts}))


def run(args: argparse.Namespace) -> int:
    """Run `headrace restore`."""
    if (args.dir is None) == (not args.broker_config):
        raise UsageError("give --dir, or --broker-config for each broker of this machine")
    if args.dir is not None and args.brokers is not None:
        raise UsageError("--brokers goes with --broker-config: with --dir all brokers are known")
    store = place_in(args)
    manifest = read_manifest(store, args.backup)
    with signals_interrupt():
        if args.dir is None:
            configs = [BrokerConfig.load(path) for path in args.broker_config]
            brokers = args.brokers or tuple(sorted(BrokerId(each.broker_id) for each in configs))
            restored = _restore(store, manifest, configs, brokers)
        else:
            restored = _restore_local(store, manifest, args.dir)
    _tell(args, manifest, restored)
    return 0


def _tell(args: argparse.Namespace, manifest: Manifest, restored: Restored) -> None:
    missing = ", ".join(map(str, restored.missing))
    if args.json:
        print_json(
            {
                "backup": manifest.number,
                "replicas": restored.partitions,
                "missing_brokers": list(restored.missing),
            }
        )
    elif restored.missing:
        write_line(
            f"{restored.partitions} replicas of backup {manifest.number} are written here; now run "
            f"the command where the brokers {missing} are, and start brokers only when it says "
            "that the cluster is restored"
        )
    else:
        then = "start its brokers"
        if args.dir is not None:
            then = f"start it with: headrace up --dir {args.dir} --detach"
        write_line(
            f"the cluster is restored from backup {manifest.number}, "
            f"{restored.partitions} replicas of it here; {then}"
        )


def _restore(
    store: BackupStore,
    manifest: Manifest,
    configs: Sequence[BrokerConfig],
    brokers: Sequence[BrokerId],
) -> Restored:
    connects = {config.zookeeper_connect for config in configs}
    if len(connects) > 1:
        raise UsageError(f"the brokers have several ZooKeepers: {', '.join(sorted(connects))}")
    (connect,) = connects
    access = zookeeper_access(configs[0])
    _make_chroot(ConnectString.parse(connect), access)
    line = ProgressLine()
    with connected(connect, access) as client:
        return restore(store, manifest, configs, brokers, client, access, line.tell)


def _make_chroot(connect: ConnectString, access: ZooKeeperAccess) -> None:
    if connect.chroot:
        with connected(connect.hosts, access) as client:
            client.ensure_path(connect.chroot)


def _restore_local(store: BackupStore, manifest: Manifest, directory: Path) -> Restored:
    line = ProgressLine()
    cluster = LocalCluster(directory, progress=line.tell)
    if not cluster_file.exists(directory):
        count = _brokers_of(store, manifest)
        line.tell(f"making a cluster with brokers 1 to {count}")
        cluster.up(UpRequest(brokers=count, port=0))
        cluster.down()
    with directory_lock(cluster.directory), ExitStack() as stack:
        state = cluster.state
        if running := [entry.id for entry in state.brokers if entry.pid is not None]:
            raise CommandError(
                f"broker {running[0]} of '{directory}' runs: stop the cluster first, with "
                f"headrace down --dir {directory}"
            )
        if state.zookeeper_dir is not None and state.zookeeper_pid is None:
            (_, port), *_ = parse_zookeeper_hosts(state.zookeeper)
            tls = None
            if state.security is not None:
                from storage_engine.tools.local.secured import SecuredCluster

                tls = SecuredCluster(cluster.directory).zookeeper_tls
            server = start_embedded(cluster.directory / state.zookeeper_dir, port=port, tls=tls)
            stack.callback(server.stop)
        configs = [BrokerConfig.load(cluster.directory / each.config) for each in state.brokers]
        brokers = tuple(sorted(BrokerId(each.id) for each in state.brokers))
        return _restore(store, manifest, configs, brokers)


def _brokers_of(store: BackupStore, manifest: Manifest) -> int:
    """As many brokers as the backup's partitions were on; `up` numbers them from 1."""
    topics = topics_in(read_nodes_of(store, manifest))
    used = {
        broker
        for topic in topics.values()
        for replicas in topic.assignment.values()
        for broker in replicas
    }
    return max(1, len(used))
