"""Arguments that `backup`, `restore` and `verify` share: where the backups are, and the cluster."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from storage_engine.backup.places import open_store
from storage_engine.backup.store import BackupStore
from storage_engine.client.cluster import Cluster
from storage_engine.tools.arguments import add_bootstrap_server, pairs
from storage_engine.tools.client_settings import connect
from storage_engine.tools.errors import UsageError
from storage_engine.tools.local.cluster_file import ClusterFile
from storage_engine.tools.local.local_cluster import LocalCluster


def add_place(parser: argparse.ArgumentParser, name: str) -> None:
    """`--to` or `--from`, and the options of an object store."""
    parser.add_argument(
        name,
        dest="place",
        required=True,
        metavar="PLACE",
        help="where the backups are: a folder, or s3://bucket/prefix (extra backup)",
    )
    parser.add_argument(
        "--store-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the object store, such as aws_endpoint=https://host or aws_region=eu-1; "
        "repeatable; credentials are taken from the environment, too (AWS_ACCESS_KEY_ID, …)",
    )


def place_in(args: argparse.Namespace) -> BackupStore:
    return open_store(args.place, pairs(args.store_option))


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """`--dir`, or `--bootstrap-server` with `--command-config`."""
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="directory of a local cluster (headrace up)"
    )
    add_bootstrap_server(parser, required=False)


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """How to reach the cluster that the arguments name."""

    bootstrap_servers: str
    command_config: Path | None
    broker_config: Path | None
    """The settings of one of its brokers, where the arguments say which."""

    def connect(self) -> Cluster:
        return connect(self.bootstrap_servers, self.command_config)


def cluster_in(args: argparse.Namespace) -> RunningCluster | None:
    """None where the arguments name no cluster. UsageError where they name two."""
    if args.dir is not None:
        if args.bootstrap_server is not None:
            raise UsageError("give --dir or --bootstrap-server, not both")
        local = LocalCluster(args.dir)
        state = local.state
        return RunningCluster(
            state.bootstrap_servers, local.admin_config(state), first_config(args.dir, state)
        )
    if args.bootstrap_server is None:
        return None
    return RunningCluster(
        args.bootstrap_server, args.command_config, getattr(args, "broker_config", None)
    )


def first_config(directory: Path, state: ClusterFile) -> Path:
    return directory / state.brokers[0].config
