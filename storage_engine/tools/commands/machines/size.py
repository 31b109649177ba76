"""Say how many brokers, cores, disks and how much memory a load needs.

The figures behind it were measured on small machines (docs/measurements.md, docs/scale.md), so that
faster ones need less; 'headrace bench' measures yours. Half of each core is left for bursts, and
for the loss of a machine (--busy), and a quarter of each disk (--full).

Numbers may end with k, M, G or T, for powers of 1000.

examples:
  headrace size --records-per-second 200k --record-bytes 500 --partitions 300 --retention-hours 72
  headrace size --records-per-second 2k --record-bytes 1k --partitions 24 --retention-hours 168 \\
      --batch-bytes 1k --tls --json
"""

import argparse
import math
import re
from dataclasses import asdict

from storage_engine.core.errors import ConfigError
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.errors import UsageError
from storage_engine.tools.local.machine.sizing import ClusterLoad, ClusterSize, size_of
from storage_engine.tools.table import print_json, print_table, report_line

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kMGT]?)")
_POWERS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_DEFAULT = ClusterLoad(records_per_s=1, record_bytes=1, partitions=1, retention_s=1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace size`."""
    _add_number(parser, "--records-per-second", "records that producers send, at the busiest time")
    _add_number(parser, "--record-bytes", "bytes of a record as it is stored, compressed")
    _add_number(parser, "--partitions", "partitions of all topics")
    _add_number(parser, "--retention-hours", "hours for which records are kept")
    _add_number(parser, "--readers", "how often each record is read", _DEFAULT.readers)
    _add_number(
        parser,
        "--batch-bytes",
        "bytes of a producer's batch; as many as --record-bytes for one record a request",
        _DEFAULT.batch_bytes,
    )
    parser.add_argument(
        "--replication-factor",
        type=positive_integer,
        default=_DEFAULT.replication_factor,
        metavar="N",
        help=f"replicas of each partition (default {_DEFAULT.replication_factor})",
    )
    parser.add_argument(
        "--machines",
        type=positive_integer,
        default=_DEFAULT.machines,
        metavar="N",
        help=f"machines for the brokers (default {_DEFAULT.machines})",
    )
    _add_number(parser, "--disk-bytes", "bytes of a disk", _DEFAULT.disk_bytes)
    _add_number(parser, "--busy", "the share of cores that may be used, up to 1", _DEFAULT.busy)
    _add_number(parser, "--full", "the share of disks that may be used, up to 1", _DEFAULT.full)
    parser.add_argument("--tls", action="store_true", help="all connections are encrypted")
    add_json(parser)


def _add_number(
    parser: argparse.ArgumentParser, name: str, meaning: str, default: float | None = None
) -> None:
    told = "" if default is None else f" (default {default:g})"
    parser.add_argument(
        name,
        type=number,
        required=default is None,
        default=default,
        metavar="N",
        help=f"{meaning}{told}",
    )


def number(text: str) -> float:
    """The number in `200k`, more than 0."""
    found = _NUMBER.fullmatch(text)
    value = float(found[1]) * _POWERS[found[2]] if found else 0
    if not value > 0 or math.isinf(value):
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0, such as 300, 1.5 or 200k")
    return value


def run(args: argparse.Namespace) -> int:
    """Run `headrace size`."""
    load = ClusterLoad(
        records_per_s=args.records_per_second,
        record_bytes=math.ceil(args.record_bytes),
        partitions=math.ceil(args.partitions),
        retention_s=args.retention_hours * 3600,
        readers=args.readers,
        batch_bytes=math.ceil(args.batch_bytes),
        replication_factor=args.replication_factor,
        machines=args.machines,
        disk_bytes=math.ceil(args.disk_bytes),
        busy=args.busy,
        full=args.full,
        with_tls=args.tls,
    )
    try:
        size = size_of(load)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if args.json:
        print_json(asdict(size))
        return 0
    print_table(("figure", "needed"), [[name, text] for name, text in _rows(size)])
    for warning in size.warnings:
        report_line(f"warning: {warning}")
    return 0


def _rows(size: ClusterSize) -> list[tuple[str, str]]:
    return [
        ("brokers", f"{size.brokers}, each with {size.replicas_of_broker} replicas"),
        ("machines", f"{size.machines}, each with:"),
        ("  cores", str(size.cores_of_machine)),
        ("  memory", _bytes(size.memory_of_machine)),
        ("  disks", str(size.disks_of_machine)),
        ("  network, in", _rate(size.machine_in_bytes_per_s)),
        ("  network, out", _rate(size.machine_out_bytes_per_s)),
        ("busy cores of all brokers", f"{size.busy_cores:.2f}"),
        ("written", _rate(size.written_bytes_per_s)),
        ("read", _rate(size.read_bytes_per_s)),
        ("stored by all", _bytes(size.stored_bytes)),
        ("controller, when a broker is lost", f"{size.failover_s:.2f} s"),
        ("broker, from a kill until it serves", f"{size.restart_s:.1f} s"),
    ]


def _rate(bytes_per_s: float) -> str:
    return f"{_bytes(bytes_per_s)}/s"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
