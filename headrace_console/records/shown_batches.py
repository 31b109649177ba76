"""Record batches as stored in a log, explained; and single records with their batch."""

import contextlib
import time

from headrace_console.given import bad
from headrace_console.problem import ConsoleError
from headrace_console.records.found_messages import messages, schema_columns
from headrace_console.records.message_search import MOST_BATCH_BYTES, PARTITION_TIMEOUT_MS
from headrace_console.records.schema_values import SchemaValues
from headrace_console.records.shown_values import DETAIL_CHARS
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.errors import CorruptRecordError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.records.compression import decompress
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    Codec,
    crc_matches,
    iter_headers,
)
from storage_engine.protocol.records.record_decoder import DecodedRecords, decode_batches
from storage_engine.protocol.typed.typed_batch import is_typed
from storage_engine.tools.document import Document

MOST_BYTES = 8 << 20
"""About the most bytes that are read for one list of batches."""
LOOK_BACK = 2_000
"""The number of offsets before the end that are searched for the newest batches."""
UNPACK_S = 2.0
"""The time limit for decompressing a list's batches; the size of later ones stays unknown."""
MOST_RAW_BYTES = 16 << 20


def batches(
    cluster: Cluster, tp: TopicPartition, start: str, limit: int, *, topic_is_typed: bool
) -> Document:
    """Return a list of a partition's batches. `start`: newest, or offset:N."""
    first = cluster.list_offsets({tp: EARLIEST})[tp]
    end = cluster.list_offsets({tp: LATEST})[tp]
    kind, _, rest = start.partition(":")
    if start == "newest":
        at = max(first, end - LOOK_BACK)
    elif kind == "offset" and rest.isascii() and rest.isdigit() and len(rest) <= 19:
        at = max(first, int(rest))
    else:
        raise bad("parameter 'from' must be newest or offset:N")
    rows: list[tuple[BatchHeader, Document]] = []
    size = 0
    unpack_until_s = time.monotonic() + UNPACK_S
    reader = _reader(cluster, tp, at, end, topic_is_typed=topic_is_typed)
    with contextlib.closing(reader.read()) as fetches:
        for fetched in fetches:
            size += len(fetched.records)
            for position, header in iter_headers(fetched.records):
                batch = fetched.records[position : position + header.size_in_bytes]
                unpacks = time.monotonic() < unpack_until_s
                rows.append((header, described_batch(tp, batch, header, unpacks=unpacks)))
            if size >= MOST_BYTES or (len(rows) >= limit and start != "newest"):
                break
    shown = rows[-limit:] if start == "newest" else rows[:limit]
    next_offset = shown[-1][0].next_offset if shown else end
    return {
        "as_of_ms": int(time.time() * 1000),
        "rows": [document for _, document in shown],
        "next": {"from": f"offset:{next_offset}"} if next_offset < end else None,
    }


def _reader(
    cluster: Cluster, tp: TopicPartition, start: int, end: int, *, topic_is_typed: bool
) -> BatchFetcher:
    wants = None
    if topic_is_typed:
        from storage_engine.protocol.typed.projection import WANT_STORED, TypedWant

        # As stored; other clients get JSON.
        wants = {tp.topic: TypedWant(WANT_STORED)}
    return BatchFetcher(
        cluster,
        {tp: (start, end)},
        max_bytes=1 << 20,
        timeout_ms=PARTITION_TIMEOUT_MS,
        most_in_flight=0,
        typed_wants=wants,
    )


def described_batch(
    tp: TopicPartition, batch: memoryview, header: BatchHeader, *, unpacks: bool
) -> Document:
    """Return a batch's header fields, and its description in words."""
    codec = _codec(header)
    control = _control(batch, header)
    unpacked = _unpacked_bytes(batch, header) if unpacks and codec not in ("none", "") else None
    if codec == "none":
        unpacked = header.size_in_bytes - HEADER_BYTES
    has_producer = header.producer_id >= 0
    crc_ok = crc_matches(batch, 0, header.size_in_bytes)
    return {
        "partition": tp.partition,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.records_count,
        "size_bytes": header.size_in_bytes,
        "uncompressed_bytes": unpacked,
        "codec": codec,
        "producer_id": header.producer_id if has_producer else None,
        "producer_epoch": header.producer_epoch if has_producer else None,
        "base_sequence": header.base_sequence if header.base_sequence >= 0 else None,
        "transactional": header.is_transactional,
        "control": control,
        "typed": is_typed(header),
        "leader_epoch": header.partition_leader_epoch,
        "first_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "magic": header.magic,
        "crc_ok": crc_ok,
        "words": _words(header, control, codec, unpacked, crc_ok=crc_ok),
    }


def _codec(header: BatchHeader) -> str:
    try:
        return Codec(header.compression).name.lower()
    except ValueError:
        return f"codec {header.compression}"


def _control(batch: memoryview, header: BatchHeader) -> str | None:
    if not header.is_control:
        return None
    try:
        marker = read_marker(batch)
    except CorruptRecordError:
        return "other"
    return "other" if marker is None else "commit" if marker.commits else "abort"


def _unpacked_bytes(batch: memoryview, header: BatchHeader) -> int | None:
    if is_typed(header):
        # Each column is compressed on its own.
        return None
    try:
        section = batch[HEADER_BYTES : header.size_in_bytes]
        return len(decompress(header.compression, section, max_bytes=MOST_BATCH_BYTES))
    except KafkaError:
        return None


def _words(
    header: BatchHeader, control: str | None, codec: str, unpacked: int | None, *, crc_ok: bool
) -> str:
    if control is not None:
        ends = {"commit": "committed", "abort": "aborted"}.get(control)
        if ends is None:
            return "A control batch of another kind: it ends no transaction."
        return (
            f"A control batch: the transaction of producer {header.producer_id} ends here and "
            f"is {ends}. It holds no records; readers skip it."
        )
    if header.records_count == 0:
        return "An empty batch, left by compaction: its records were replaced by newer ones."
    count = header.records_count
    is_one = count == 1
    words = ["1 record" if is_one else f"{count} records"]
    together, whose, them = ("", "its", "it") if is_one else (" together", "their", "them")
    if is_typed(header):
        words.append("in columns, by the topic's schema")
    elif codec == "none":
        words.append("not compressed")
    elif unpacked:
        ratio = unpacked / max(1, header.size_in_bytes - HEADER_BYTES)
        part = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"
        words.append(f"compressed{together} by {codec} to 1/{part} of {whose} size")
    else:
        words.append(f"compressed{together} by {codec}")
    if header.is_transactional:
        words.append(
            f"part of a transaction of producer {header.producer_id}: read_committed readers "
            f"see {them} when its commit marker follows"
        )
    elif header.base_sequence >= 0:
        words.append(
            f"sent by producer {header.producer_id} as "
            + (
                f"number {header.base_sequence}: if it sends it again, it is stored once"
                if is_one
                else f"numbers {header.base_sequence} to {header.last_sequence}: if it sends them "
                "again, they are stored once"
            )
        )
    gaps = header.last_offset - header.base_offset + 1 - count
    if gaps:
        words.append(f"{gaps} of its offsets were compacted away")
    text = "; ".join(words) + "."
    if not crc_ok:
        text += " Its checksum is wrong: the bytes are damaged."
    return text


def one_message(
    cluster: Cluster,
    tp: TopicPartition,
    offset: int,
    schema: TopicSchema | None,
    schemas: SchemaValues | None = None,
) -> Document:
    """Return a message with its batch. ConsoleError not_found if no record has that offset.
    `schemas`: reads key and value through a registry."""
    batch, header, records = _record(cluster, tp, offset)
    columns = None if schema is None else [str(each["name"]) for each in schema_columns(schema)]
    (found,) = messages(
        tp, records, [0], columns=columns, most_chars=DETAIL_CHARS, pretty=True, schemas=schemas
    )
    return {**found.document, "batch": described_batch(tp, batch, header, unpacks=True)}


def raw_part(cluster: Cluster, tp: TopicPartition, offset: int, part: str) -> bytes:
    """Return the bytes of a key or value; ConsoleError if it is null or too large."""
    _, _, records = _record(cluster, tp, offset)
    data = (records.keys if part == "key" else records.values)[0].as_py()
    if data is None:
        raise ConsoleError("not_found", f"the {part} of this message is null")
    if len(data) > MOST_RAW_BYTES:
        raise ConsoleError(
            "too_large", f"the {part} has {len(data)} bytes; read it with headrace consume"
        )
    return bytes(data)


def _record(
    cluster: Cluster, tp: TopicPartition, offset: int
) -> tuple[memoryview, BatchHeader, DecodedRecords]:
    reader = _reader(cluster, tp, offset, offset + 1, topic_is_typed=False)
    with contextlib.closing(reader.read()) as fetches:
        for fetched in fetches:
            for position, header in iter_headers(fetched.records):
                if header.base_offset <= offset <= header.last_offset:
                    batch = fetched.records[position : position + header.size_in_bytes]
                    records = decode_batches(
                        bytes(batch),
                        start_offset=offset,
                        end_offset=offset + 1,
                        include_headers=True,
                        max_decompressed_bytes=2 * MOST_BATCH_BYTES,
                    )
                    if len(records):
                        return batch, header, records
    raise ConsoleError(
        "not_found",
        f"{tp} has no record with offset {offset}: it is a marker of a transaction, was compacted "
        "away or is deleted",
    )
