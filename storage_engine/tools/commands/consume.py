"""Print the records of a topic to stdout, and wait for new ones until Ctrl-C.

Without --json, each record is a line with its value; a null value is an empty line. With --json,
each record is a line with a JSON document: topic, partition, offset, timestamp (milliseconds since
1970), key, value and headers. A key or value that is not UTF-8 is null there, and its bytes are in
base64 under key_base64 or value_base64.

The value of a row of a typed topic is a JSON object with its columns. With --columns or --where,
brokers send only the chosen columns and rows, and each line is a JSON object with these columns;
_topic, _partition, _offset, _timestamp, _headers and _deleted are then columns too.

With --schema-registry, a key or value that a serializer of a schema registry has written is printed
as the JSON that it stands for, be it Avro, JSON or Protobuf; all others are printed as they are.
With --json, that JSON is the key or value of the document, beside key_schema_id or value_schema_id.
One that can't be read ends the command, or has its bytes and key_error or value_error with --json.

With --group, the command is a member of a consumer group: it shares the topic's partitions with the
other members, goes on where the group has committed, and commits what it has printed.

examples:
  headrace consume flights --bootstrap-server 127.0.0.1:9092 --max 10
  headrace consume flights --bootstrap-server 127.0.0.1:9092 --from latest --json
  headrace consume flights --bootstrap-server 127.0.0.1:9092 --partition 0 --from 42 --exit-at-end
  headrace consume flights --bootstrap-server 127.0.0.1:9092 --group billing \\
      --group-protocol consumer
  headrace consume trips --bootstrap-server 127.0.0.1:9092 --columns id,fare,_offset \\
      --where "fare > 10 AND city = 'Rome'"
  headrace consume rides --bootstrap-server 127.0.0.1:9092 \\
      --schema-registry http://127.0.0.1:8081
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from storage_engine.client.cluster import EARLIEST, ISOLATION_LEVELS, LATEST, Cluster
from storage_engine.client.consumer.consumer_config import CLASSIC_PROTOCOL, CONSUMER_PROTOCOL
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.fetching.typed_reading import (
    SCHEMA_WAIT_MS,
    Selection,
    TypedReading,
    TypedReadings,
    without_columns,
)
from storage_engine.client.framed_values.framed_json import FramedJson, ReadBounds
from storage_engine.client.schema_registry import SchemaRegistry
from storage_engine.client.schema_registry_http import DEFAULT_PATIENCE_MS
from storage_engine.core.errors import OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.column_types import (
    ArrayColumn,
    BinaryColumn,
    BooleanColumn,
    ColumnType,
    IntegerColumn,
    StringColumn,
    StructColumn,
    StructColumnField,
    TimestampColumn,
)
from storage_engine.protocol.records.record_decoder import DecodedRecords, iter_decoded
from storage_engine.protocol.typed.arrays.json_text import json_objects, json_texts
from storage_engine.protocol.typed.projection import TypedWant
from storage_engine.protocol.typed.typed_decoder import TypedRows
from storage_engine.tools.arguments import (
    add_bootstrap_server,
    add_columns,
    natural_number,
    positive_integer,
)
from storage_engine.tools.client_settings import connect
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.group_consumption import Format, check_group, consume_as_member
from storage_engine.tools.line_records import join_lines
from storage_engine.tools.record_text import documents
from storage_engine.tools.registry_address import registry_address
from storage_engine.tools.schema_lines import SchemaLines
from storage_engine.tools.table import write_bytes

_POLL_MS = 200
_STARTS = {"earliest": EARLIEST, "latest": LATEST}

_METADATA_TYPES: dict[str, ColumnType] = {
    "_topic": StringColumn(),
    "_partition": IntegerColumn(32),
    "_offset": IntegerColumn(64),
    "_timestamp": TimestampColumn(with_zone=True),
    "_headers": ArrayColumn(
        StructColumn(
            (
                StructColumnField("key", StringColumn()),
                StructColumnField("value", BinaryColumn()),
            )
        )
    ),
    "_deleted": BooleanColumn(),
}

Range = tuple[int, int | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace consume`."""
    parser.add_argument("topic", metavar="TOPIC", help="an existing topic")
    add_bootstrap_server(parser)
    parser.add_argument(
        "--from",
        dest="start",
        default="earliest",
        metavar="earliest|latest|OFFSET",
        help="where to begin (default: earliest); an OFFSET needs --partition when the topic has "
        "more than one partition",
    )
    parser.add_argument(
        "--partition",
        type=natural_number,
        metavar="P",
        help="read only this partition (default: all)",
    )
    parser.add_argument(
        "--group",
        metavar="GROUP",
        help="be a member of this consumer group; --from then says where a partition begins that "
        "the group has committed nothing of",
    )
    parser.add_argument(
        "--group-protocol",
        choices=(CLASSIC_PROTOCOL, CONSUMER_PROTOCOL),
        help="how the group shares its partitions: classic, one of its members assigns them, or "
        "consumer, the brokers do (default: classic)",
    )
    parser.add_argument("--max", type=positive_integer, metavar="N", help="stop after N records")
    parser.add_argument(
        "--exit-at-end",
        action="store_true",
        help="stop at the offset that was the log's end when the command began, instead of waiting "
        "for new records",
    )
    parser.add_argument(
        "--timeout-ms",
        type=positive_integer,
        metavar="MS",
        help="stop when no record has arrived for this many milliseconds (default: never)",
    )
    parser.add_argument(
        "--isolation",
        choices=list(ISOLATION_LEVELS),
        default="read_uncommitted",
        help="read_committed leaves out records of open and aborted transactions "
        "(default: read_uncommitted)",
    )
    add_columns(parser)
    parser.add_argument(
        "--schema-registry",
        metavar="URL",
        help="registry to read keys and values through, several instances with commas; the log-in "
        "is that of the URL, or of --command-config",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print one JSON document per record")
    shape.add_argument("--key-separator", metavar="S", help="print the key and S before each value")


def run(args: argparse.Namespace) -> int:
    """Run `headrace consume`."""
    check_group(args)
    if args.schema_registry is not None and (args.columns is not None or args.where is not None):
        raise UsageError(
            "--schema-registry does not go with --columns and --where, whose rows have their types "
            "from the topic: leave one out"
        )
    try:
        if args.group is not None:
            consume_as_member(args, _format(args))
            return 0
        with connect(args.bootstrap_server, args.command_config) as cluster:
            _consume(cluster, args)
    except KeyboardInterrupt:
        return 0
    return 0


def _consume(cluster: Cluster, args: argparse.Namespace) -> None:
    ranges = find_ranges(
        cluster,
        args.topic,
        start=args.start,
        partition=args.partition,
        isolation=args.isolation,
        to_end=args.exit_at_end,
    )
    lines: _RecordLines | _RowLines
    if args.columns is None and args.where is None:
        lines = _RecordLines(args)
    elif args.json or args.key_separator is not None:
        raise UsageError(
            "--columns and --where print rows as JSON: leave out --json and --key-separator"
        )
    else:
        lines = _RowLines(cluster, args)
    left: int | None = args.max
    last_s = time.monotonic()
    while True:
        reader = BatchFetcher(
            cluster, ranges, isolation=args.isolation, typed_wants=lines.typed_wants
        )
        try:
            while not lines.is_outdated():
                if reader.done:
                    return
                for fetched in reader.poll(_POLL_MS):
                    last_s = time.monotonic()
                    end_offset = ranges[fetched.tp][1]
                    for text, count in lines.of(fetched, end_offset, left):
                        write_bytes(text)
                        if left is not None:
                            left -= count
                            if left == 0:
                                return
                    if lines.is_outdated():
                        break
                    ranges[fetched.tp] = (fetched.next_offset, end_offset)
                silent_ms = (time.monotonic() - last_s) * 1000
                if args.timeout_ms is not None and silent_ms >= args.timeout_ms:
                    return
        finally:
            reader.close()
        lines.renew()


class _RecordLines:
    """Formats records as lines."""

    typed_wants = None

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._form = _format(args)

    def of(
        self, fetched: FetchedBatches, end_offset: int | None, left: int | None
    ) -> Iterator[tuple[bytes, int]]:
        for records in _decoded(fetched, end_offset, self._args, left):
            yield self._form(fetched.tp, records), len(records)

    def is_outdated(self) -> bool:
        return False

    def renew(self) -> None:
        """Do nothing: records are never outdated."""


class _RowLines:
    """Columns of a topic with a schema as lines. After a change of the schema it is `is_outdated`
    until it is renewed: then what came last is to be fetched again."""

    def __init__(self, cluster: Cluster, args: argparse.Namespace) -> None:
        self._topic: str = args.topic
        self._readings = TypedReadings(cluster)
        self._readings.select(Selection.of(args.columns, args.where))
        self._outdated_by: FetchedBatches | None = None
        self._reading = self._known(self._readings.of(self._topic))

    def _known(self, reading: TypedReading | None) -> TypedReading:
        if reading is None:
            raise without_columns(self._topic)
        return reading

    @property
    def typed_wants(self) -> dict[str, TypedWant]:
        return {self._topic: self._reading.want}

    def is_outdated(self) -> bool:
        return self._outdated_by is not None

    def of(
        self, fetched: FetchedBatches, end_offset: int | None, left: int | None
    ) -> Iterator[tuple[bytes, int]]:
        if self._reading.outdated_by(fetched) is not None:
            self._outdated_by = fetched
            return
        for rows in self._reading.rows(fetched, end_offset=end_offset):
            text, count = _row_lines(self._reading, fetched.tp, rows, left)
            yield text, count
            if left is not None:
                left -= count

    def renew(self) -> None:
        """Ask for the schema again. UnknownSchemaVersionError when no broker tells the version that
        rows have."""
        assert self._outdated_by is not None
        renewed = self._readings.renewed(self._topic, self._outdated_by, wait_ms=SCHEMA_WAIT_MS)
        self._reading, self._outdated_by = self._known(renewed), None


def _row_lines(
    reading: TypedReading, tp: TopicPartition, rows: TypedRows, most: int | None
) -> tuple[bytes, int]:
    """The lines of the first `most` rows (None: of all), a JSON object each, and how many they
    are. No Python runs per row."""
    batch = reading.batch_of(tp, rows)
    if most is not None:
        batch = batch.slice(0, most)
    if not batch.num_rows:
        return b"", 0
    types = {column.name: column.type for column in reading.plan.columns} | _METADATA_TYPES
    names = batch.schema.names
    texts = [json_texts(batch.column(n), types[name]) for n, name in enumerate(names)]
    return join_lines(json_objects(names, texts).cast(pa.binary())), batch.num_rows


def find_ranges(
    cluster: Cluster,
    topic: str,
    *,
    start: str,
    partition: int | None,
    isolation: str,
    to_end: bool,
) -> dict[TopicPartition, Range]:
    """The offsets at which to begin and to end in each partition; an end of None means to read on
    and on."""
    if partition is None:
        partitions = [TopicPartition(topic, number) for number in cluster.topic(topic).partitions]
    else:
        partitions = [TopicPartition(topic, partition)]
        cluster.leader(partitions[0])
    latest = dict.fromkeys(partitions, LATEST)
    ends = cluster.list_offsets(latest, isolation=isolation) if to_end else {}
    if start in _STARTS:
        starts = cluster.list_offsets(
            dict.fromkeys(partitions, _STARTS[start]), isolation=isolation
        )
    elif start.isascii() and start.isdigit():
        if len(partitions) > 1:
            raise UsageError(
                f"--from {start} needs --partition: topic '{topic}' has {len(partitions)} "
                "partitions, and each has offsets of its own"
            )
        _check_offset(cluster, partitions[0], int(start), isolation)
        starts = {partitions[0]: int(start)}
    else:
        raise UsageError(f"--from '{start}' is neither earliest nor latest nor an offset")
    return {tp: (starts[tp], ends.get(tp)) for tp in partitions}


def _check_offset(cluster: Cluster, tp: TopicPartition, offset: int, isolation: str) -> None:
    first = cluster.list_offsets({tp: EARLIEST})[tp]
    end = cluster.list_offsets({tp: LATEST}, isolation=isolation)[tp]
    if not first <= offset <= end:
        raise OffsetOutOfRangeError(
            f"offset {offset} is outside of {tp}, which has offsets from {first} to below {end}",
            log_start_offset=first,
            log_end_offset=end,
        )


def _decoded(
    fetched: FetchedBatches, end_offset: int | None, args: argparse.Namespace, left: int | None
) -> Iterator[DecodedRecords]:
    """The records of a fetch, at most `left` of them."""
    for records in iter_decoded(
        fetched.committed(),
        start_offset=fetched.start_offset,
        end_offset=end_offset,
        include_headers=args.json,
    ):
        if left is not None and len(records) >= left:
            yield _first(records, left)
            return
        yield records
        if left is not None:
            left -= len(records)


def _first(records: DecodedRecords, count: int) -> DecodedRecords:
    return DecodedRecords(
        keys=records.keys.slice(0, count),
        values=records.values.slice(0, count),
        offsets=records.offsets.slice(0, count),
        timestamps_ms=records.timestamps_ms.slice(0, count),
        timestamp_types=records.timestamp_types.slice(0, count),
        headers=None if records.headers is None else records.headers.slice(0, count),
    )


def _format(args: argparse.Namespace) -> Format:
    schemas = None if args.schema_registry is None else _schema_lines(args)
    if args.json:
        return format_json if schemas is None else schemas.json
    plain = _plain_format(args.key_separator)
    return plain if schemas is None else partial(_through_schemas, plain, schemas)


def _through_schemas(
    plain: Format, schemas: SchemaLines, tp: TopicPartition, records: DecodedRecords
) -> bytes:
    """CommandError for a record that can't be read, once those before it are printed."""
    readable, problem = schemas.plain(tp, records)
    text = plain(tp, readable)
    if problem:
        write_bytes(text)
        raise CommandError(problem)
    return text


def _plain_format(key_separator: str | None) -> Format:
    if key_separator is None:
        return lambda tp, records: join_lines(records.values)
    separator = pa.scalar(os.fsencode(key_separator), pa.binary())
    return lambda tp, records: join_lines(_with_keys(records, separator))


def _schema_lines(args: argparse.Namespace) -> SchemaLines:
    address = registry_address(
        args.schema_registry,
        args.command_config,
        option="--schema-registry",
        patience_ms=DEFAULT_PATIENCE_MS,
    )
    return SchemaLines(FramedJson(SchemaRegistry(address), ReadBounds()))


def _with_keys(records: DecodedRecords, separator: pa.Scalar) -> pa.Array:
    empty = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(
        pc.fill_null(records.keys, empty), pc.fill_null(records.values, empty), separator
    )


def format_json(tp: TopicPartition, records: DecodedRecords) -> bytes:
    """Return one JSON document per line."""
    place = {"topic": tp.topic, "partition": tp.partition}
    lines = [
        json.dumps({**place, **document}, ensure_ascii=False, separators=(",", ":"))
        for document in documents(records)
    ]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
