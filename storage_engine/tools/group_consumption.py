"""Reads a topic as a member of a group, for `headrace consume --group`.

What is printed is committed every five seconds, when partitions go to another member, and at the
end. A reader that is killed, or whose output is closed, commits nothing of its last records: they
are printed again by whoever goes on.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterable

import pyarrow as pa

from storage_engine.client.consumer.consumer import Consumer
from storage_engine.client.consumer.consumer_record import ConsumerRecord
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import DecodedRecords
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.tools.client_settings import file_settings
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import write_bytes

_POLL_MS = 200

Format = Callable[[TopicPartition, DecodedRecords], bytes]


def check_group(args: argparse.Namespace) -> None:
    """UsageError for options that do not fit a member of a group, or that only fit one."""
    if args.group is None:
        if args.group_protocol is not None:
            raise UsageError(
                "--group-protocol needs --group; give the group to read as a member of"
            )
        return
    for option, value in (
        ("--partition", args.partition),
        ("--exit-at-end", args.exit_at_end or None),
        ("--columns", args.columns),
        ("--where", args.where),
    ):
        if value is not None:
            raise UsageError(
                f"{option} does not fit --group, whose members share all partitions: leave one out"
            )
    if args.start not in ("earliest", "latest"):
        raise UsageError(
            f"--from {args.start} does not fit --group, which goes on where it has committed: give "
            "earliest or latest for a group that has committed nothing"
        )


def consume_as_member(args: argparse.Namespace, form: Format) -> None:
    """Print records until `--max` or `--timeout-ms`; a Ctrl-C between two polls commits, too."""
    config = {
        **file_settings(args.command_config),
        "bootstrap.servers": args.bootstrap_server,
        "group.id": args.group,
        "group.protocol": args.group_protocol or "classic",
        "auto.offset.reset": args.start,
        "isolation.level": args.isolation,
    }
    with Consumer(config) as consumer:
        consumer.subscribe([args.topic])
        left: int | None = args.max
        last_s = time.monotonic()
        is_printed = True
        try:
            while left != 0:
                records = consumer.poll(_POLL_MS, left)
                is_printed = False
                for tp, rows in itertools.groupby(records, _partition_of):
                    write_bytes(form(tp, _decoded(list(rows))))
                is_printed = True
                if records:
                    last_s = time.monotonic()
                    left = None if left is None else left - len(records)
                silent_ms = (time.monotonic() - last_s) * 1000
                if args.timeout_ms is not None and silent_ms >= args.timeout_ms:
                    return
        except KeyboardInterrupt:
            if not is_printed:
                raise


def _partition_of(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def _decoded(records: Iterable[ConsumerRecord]) -> DecodedRecords:
    rows = list(records)
    headers = [[{"key": key, "value": value} for key, value in record.headers] for record in rows]
    return DecodedRecords(
        keys=pa.array([record.key for record in rows], pa.binary()),
        values=pa.array([record.value for record in rows], pa.binary()),
        offsets=pa.array([record.offset for record in rows], pa.int64()),
        timestamps_ms=pa.array([record.timestamp_ms for record in rows], pa.int64()),
        timestamp_types=pa.array([record.timestamp_type for record in rows], pa.int32()),
        headers=pa.array(headers, HEADERS_TYPE),
    )
