"""Check that a backup is whole, or that a cluster holds what a backup has.

Without a cluster the command reads every file of the backup, and checks its checksum, those of the
batches in it, and their offsets. With one it also compares each batch with the cluster's: right
after a restore all must be the same. What is written behind the backup's end does not count, and in
compacted topics batches may have been compacted since, which a column shows.

examples:
  headrace verify --from /backups/east
  headrace verify --from s3://bucket/east --backup 12 --json
  headrace verify --from /backups/east --dir ./restored
  headrace verify --from /backups/east --bootstrap-server west:9092
"""

import argparse
from dataclasses import asdict

from storage_engine.backup.catalog import read_manifest
from storage_engine.backup.verifier import TopicReport, check_backup, compare
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.backup_arguments import add_cluster, add_place, cluster_in, place_in
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.signals import signals_interrupt
from storage_engine.tools.placement.progress_line import ProgressLine
from storage_engine.tools.table import print_rows

_COLUMNS = ("topic", "partitions", "batches", "missing", "compacted", "different", "problem")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace verify`."""
    add_place(parser, "--from")
    parser.add_argument(
        "--backup",
        type=positive_integer,
        metavar="N",
        help="number of the backup (default: the newest; headrace backup --list shows all)",
    )
    add_cluster(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace verify`."""
    store = place_in(args)
    manifest = read_manifest(store, args.backup)
    target = cluster_in(args)
    line = ProgressLine()
    with signals_interrupt():
        if target is None:
            reports = check_backup(store, manifest, line.tell)
        else:
            with target.connect() as cluster:
                reports = compare(cluster, store, manifest, line.tell)
    print_rows(_COLUMNS, [asdict(each) for each in reports], as_json=args.json)
    _raise_if_bad(reports, manifest.number)
    return 0


def _raise_if_bad(reports: list[TopicReport], number: int) -> None:
    bad = [each.topic for each in reports if not each.is_good]
    if bad:
        raise CommandError(
            f"backup {number} is not as it should be in {len(bad)} of {len(reports)} topics, such "
            f"as {bad[0]}: the table says what is wrong"
        )
