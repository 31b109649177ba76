"""Write lines from stdin to a topic, one record per line, and wait until all are acknowledged.

With --key-separator, the text of a line before the first separator is the record's key. Records of
the same key go to the same partition, in order; the partition is the one that Kafka's Java clients
choose. Records without keys are spread over the partitions.

For a typed topic each line is a JSON object with its columns. A line that does not fit the schema
ends the command with an error that names the line; lines sent in the same batch are not written
either. Where the schema has a key, lines without a separator go to the partition of their row's
key.

examples:
  echo hello | headrace produce greetings --bootstrap-server 127.0.0.1:9092
  printf 'a:1\\nb:2\\n' | headrace produce t --bootstrap-server 127.0.0.1:9092 --key-separator :
  tail -f app.log | headrace produce logs --bootstrap-server 127.0.0.1:9092 --acks 1
"""

import argparse
import functools
import itertools
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.client.admin.topics import describe_topic_configs
from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.client.producer.produce import DELIVERY_TIMEOUT_MS, BatchWriter
from storage_engine.client.producer.producer_errors import RefusedRecordsError
from storage_engine.client.topic_schemas import KnownSchema, TopicSchemas
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.protocol.records.record_encoder import DEFAULT_BATCH_BYTES, encode_batches
from storage_engine.protocol.typed.json_columns import typed_from_json
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.protocol.typed.typed_keys import key_bytes
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

LineNumbers: TypeAlias = range | npt.NDArray[np.int64]

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_PROGRESS_S = 0.5
_ONE_BATCH = 1 << 30


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
        known = TopicSchemas(cluster).get(args.topic)
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
                row_keys=RowKeys(known) if known is not None and known.schema.key else None,
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
                sender.check()
                outcome = "sent, none acknowledged" if acks == 0 else "acknowledged"
                print(f"{sender.sent} records {outcome}", file=sys.stderr)
    return 0


class RowKeys:
    """The keys of rows that come as lines of JSON, read as the topic's leaders will. No Python runs
    per row."""

    def __init__(self, known: KnownSchema) -> None:
        self._known = known
        schema = known.schema
        self._plan = plan(schema, [each.name for each in schema.key_columns(schema.latest)])

    def of(self, lines: pa.Array, first_line: int) -> pa.Array:
        """The key of each line, which are numbered from `first_line` on. CommandError names a line
        that does not fit."""
        schema = self._known.schema
        (batch,) = encode_batches(lines, batch_bytes=_ONE_BATCH)
        try:
            typed = typed_from_json(
                memoryview(batch.data), read_header(batch.data), schema, self._known.topic_id
            )
        except RowsDoNotFitError as error:
            raise CommandError(
                refused_line(first_line + error.row, error.row, str(error))
            ) from None
        pieces = iter_typed_decoded(typed, self._plan, framed=False, topic_schema=schema)
        return pa.concat_arrays([key_bytes(each.batch, schema, schema.latest) for each in pieces])


def refused_line(line: int, place: int, reason: str) -> str:
    """The message about a line that does not fit. `reason`: of the record at that place of a
    batch."""
    return f"line {line} of the input: {reason.removeprefix(f'record {place} is not stored: ')}"


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
        row_keys: RowKeys | None = None,
    ) -> None:
        """`row_keys`: of a topic with a schema that has a key; lines without a separator go to the
        partitions of their rows' keys."""
        self._writer = writer
        self._row_keys = row_keys
        self._topic = topic
        self._partition_count = partition_count
        self._separator = separator
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._turn = itertools.cycle(range(partition_count))
        self.sent = 0
        # The first line of the input that was refused, and why.
        self._refused: tuple[int, HeadraceError] | None = None

    def send(self, lines: pa.Array) -> None:
        """Append the lines to the writer, in their order per partition. Raises what the first line
        that was refused was refused for."""
        self.check()
        first = self.sent + 1
        if self._separator is None and self._row_keys is None:
            # A chunk goes to one partition: large batches, and every partition in turn.
            self._append(next(self._turn), lines, None, range(first, first + len(lines)))
            return
        if self._row_keys is not None and self._separator is None:
            keys, values = self._row_keys.of(lines, first), lines
        else:
            keys, values = split_keys(lines, self._separator or b"")
        destinations = partitions_for_keys(keys, self._partition_count)
        for partition in np.unique(destinations).tolist():
            places = np.flatnonzero(destinations == partition)
            rows = pa.array(places)
            self._append(partition, values.take(rows), keys.take(rows), places + first)
        if len(keys) < len(lines):
            raise CommandError(
                f"line {self.sent + 1} of the input has no key separator "
                f"'{os.fsdecode(self._separator or b'')}'; the lines before it were sent"
            )

    def _append(
        self, partition: int, values: pa.Array, keys: pa.Array | None, lines: LineNumbers
    ) -> None:
        """`lines`: the number of each value's line in the input."""
        start = 0
        for batch in encode_batches(
            values, keys, compression=self._compression, batch_bytes=self._batch_bytes
        ):
            end = start + batch.record_count
            done = functools.partial(self._done, lines[start:end])
            self._writer.append(TopicPartition(self._topic, partition), batch, done=done)
            self.sent += batch.record_count
            start = end

    def _done(self, lines: LineNumbers, _base_offset: int, error: HeadraceError | None) -> None:
        if error is None or (self._refused and int(lines[0]) > self._refused[0]):
            return
        line = int(lines[0])
        if isinstance(error, RefusedRecordsError):
            place, reason = error.records[0]
            line = int(lines[min(place, len(lines) - 1)])
            others = len(lines) - 1
            beside = f"; {others} others that were sent with it are not written" if others else ""
            error = CommandError(refused_line(line, place, reason or "refused") + beside)
        self._refused = (line, error)

    def check(self) -> None:
        """Raises the error of the first line that is known to be refused."""
        if self._refused is not None:
            raise self._refused[1]


def read_lines(descriptor: int) -> Iterator[pa.BinaryArray]:
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
