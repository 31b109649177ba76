"""Write lines from stdin to a topic, one record per line, and wait until all are acknowledged.

With --key-separator, the text of a line before the first separator is the record's key. Records of
the same key go to the same partition, in order; the partition is the one that Kafka's Java clients
choose. Records without keys are spread over the partitions.

examples:
  echo hello | headrace produce greetings --bootstrap-server 127.0.0.1:9092
  printf 'a:1\\nb:2\\n' | headrace produce t --bootstrap-server 127.0.0.1:9092 --key-separator :
  tail -f app.log | headrace produce logs --bootstrap-server 127.0.0.1:9092 --acks 1
"""

import argparse
import itertools
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from storage_engine.client.admin.topics import describe_topic_configs
from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.client.producer.produce import DELIVERY_TIMEOUT_MS, BatchWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.records import DEFAULT_BATCH_BYTES, encode_batches
from storage_engine.tools.arguments import add_bootstrap_server, positive_integer
from storage_engine.tools.client_settings import connect
from storage_engine.tools.errors import CommandError
from storage_engine.tools.line_records import LineSplitter, split_keys

CHUNK_BYTES = 1 << 20
"""Lines are gathered up to this while they come without a pause: one batch per partition of it."""
PAUSE_S = 0.01
"""Lines that come slowly are sent after such a pause, so that `tail -f` is not held back."""
MAX_LINE_BYTES = 256 << 20
"""Far beyond any max.message.bytes; without it a file without newlines would fill the memory."""

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_PROGRESS_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace produce`."""
    parser.add_argument("topic", metavar="TOPIC", help="an existing topic")
    add_bootstrap_server(parser)
    parser.add_argument(
        "--key-separator",
        metavar="S",
        help="text between the key and the value of a line (default: lines have no key)",
    )
    parser.add_argument(
        "--acks",
        choices=list(_ACKS),
        default="all",
        help="when a record counts as written: once all in-sync replicas have it (all or -1), once "
        "the leader has it (1), or once it is sent (0) (default: all)",
    )
    parser.add_argument(
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        default="none",
        help="how record batches are compressed (default: none)",
    )
    parser.add_argument(
        "--delivery-timeout-ms",
        type=positive_integer,
        default=DELIVERY_TIMEOUT_MS,
        metavar="MS",
        help="fail when a record is not acknowledged after this many milliseconds (default "
        f"{DELIVERY_TIMEOUT_MS})",
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace produce`."""
    separator = None if args.key_separator is None else os.fsencode(args.key_separator)
    if separator == b"":
        raise CommandError("the key separator is empty; give for example --key-separator :")
    acks = _ACKS[args.acks]
    with connect(args.bootstrap_server, args.command_config) as cluster:
        partition_count = len(cluster.topic(args.topic).partitions)
        limit = describe_topic_configs(cluster, args.topic).get("max.message.bytes")
        largest = int(limit.value) if limit is not None and limit.value else DEFAULT_BATCH_BYTES
        with BatchWriter(
            cluster, acks=acks, delivery_timeout_ms=args.delivery_timeout_ms
        ) as writer:
            sender = LineSender(
                writer,
                topic=args.topic,
                partition_count=partition_count,
                separator=separator,
                compression=args.compression,
                batch_bytes=min(largest, DEFAULT_BATCH_BYTES),
            )
            report = _progress_reporter()
            try:
                stdin = sys.stdin.fileno()
                for lines in read_lines(stdin):
                    sender.send(lines)
                    if not has_more(stdin):
                        writer.flush()
                    report(sender.sent)
            finally:
                # Also after Ctrl-C or a bad line: what was taken from stdin is delivered.
                writer.flush()
                report(None)
                outcome = "sent, none acknowledged" if acks == 0 else "acknowledged"
                print(f"{sender.sent} records {outcome}", file=sys.stderr)
    return 0


class LineSender:
    """Turns lines into record batches and hands them to the writer."""

    def __init__(
        self,
        writer: BatchWriter,
        *,
        topic: str,
        partition_count: int,
        separator: bytes | None,
        compression: str,
        batch_bytes: int,
    ) -> None:
        self._writer = writer
        self._topic = topic
        self._partition_count = partition_count
        self._separator = separator
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._turn = itertools.cycle(range(partition_count))
        self.sent = 0

    def send(self, lines: Any) -> None:
        """Append the lines to the writer, in their order per partition."""
        if self._separator is None:
            # A chunk goes to one partition: large batches, and every partition in turn.
            self._append(next(self._turn), lines, None)
            return
        keys, values = split_keys(lines, self._separator)
        destinations = partitions_for_keys(keys, self._partition_count)
        for partition in np.unique(destinations).tolist():
            rows = pa.array(np.flatnonzero(destinations == partition))
            self._append(partition, values.take(rows), keys.take(rows))
        if len(keys) < len(lines):
            raise CommandError(
                f"line {self.sent + 1} of the input has no key separator "
                f"'{os.fsdecode(self._separator)}'; the lines before it were sent"
            )

    def _append(self, partition: int, values: Any, keys: Any) -> None:
        for batch in encode_batches(
            values, keys, compression=self._compression, batch_bytes=self._batch_bytes
        ):
            self._writer.append(TopicPartition(self._topic, partition), batch)
            self.sent += batch.record_count


def read_lines(descriptor: int) -> Iterator[Any]:
    """Arrow arrays of lines: full chunks while the input flows, what there is when it pauses."""
    splitter = LineSplitter(max_line_bytes=MAX_LINE_BYTES)
    while True:
        pieces = []
        gathered = 0
        ended = False
        while gathered < CHUNK_BYTES:
            piece = os.read(descriptor, CHUNK_BYTES - gathered)
            if not piece:
                ended = True
                break
            pieces.append(piece)
            gathered += len(piece)
            if not has_more(descriptor):
                break
        lines = splitter.feed(b"".join(pieces)) if pieces else None
        if lines is not None:
            yield lines
        if ended:
            rest = splitter.finish()
            if rest is not None:
                yield rest
            return


def has_more(descriptor: int) -> bool:
    """Whether something, or the end, can be read within PAUSE_S."""
    # Not `select`, which knows no descriptor above 1023.
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(PAUSE_S * 1000))


def _progress_reporter() -> Callable[[int | None], None]:
    """Shows a count on a terminal now and then; None wipes it."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        return lambda count: None
    last_s = time.monotonic()

    def report(count: int | None) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if count is None:
            print("\r\033[K", end="", file=sys.stderr)
        elif now_s - last_s >= _PROGRESS_S:
            last_s = now_s
            print(f"\r{count:,} records", end="", file=sys.stderr, flush=True)

    return report
