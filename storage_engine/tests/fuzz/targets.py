"""What is fuzzed by coverage: any bytes as a request, as records, as brokers and clients take them,
as batches of typed topics, as a record of Avro, and as the tokens of a log-in.

A target returns, or raises what no decoder of ours may: anything but an error of ours of one line.
The first bytes of an input choose what the others are meant to be, so that a mutation of the first
tries the others as another API, version or codec.
"""

import functools
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from storage_engine.broker.authentication.token_keys import TokenCheck, TokenKey, TokenRules
from storage_engine.core.errors import HeadraceError, InvalidRequestError, KafkaError
from storage_engine.core.schemas.avro.parse import parse_avro_schema
from storage_engine.core.security.sasl_server import (
    FoundCredential,
    LogInRefusedError,
    OAuthBearerServer,
    PlainServer,
    SaslServerMechanism,
    ScramDecoys,
    ScramServer,
)
from storage_engine.core.security.scram_credential import ScramMechanism
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.apis.registry import (
    INTERNAL_RANGES,
    OWN_RANGES,
    SERVED_RANGES,
    spec_for,
)
from storage_engine.protocol.avro import list_reader
from storage_engine.protocol.avro.decode import Decoder
from storage_engine.protocol.avro.framing import FRAMING_BYTES, cut
from storage_engine.protocol.avro.resolve import Resolver
from storage_engine.protocol.framing import parse_request_header
from storage_engine.protocol.records.compression import compress
from storage_engine.protocol.records.copied_batches import copied_batches
from storage_engine.protocol.records.record_batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TYPED_BIT,
    Codec,
    compute_crc,
    iter_headers,
    read_header,
    seal,
    validate_for_append,
)
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_keys import check_keys
from storage_engine.protocol.typed.directory import HEAD_BYTES
from storage_engine.protocol.typed.json_columns import typed_from_json
from storage_engine.protocol.typed.json_rows import as_json_batches
from storage_engine.protocol.typed.typed_batch import check_typed_batch, is_typed
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.tests.protocol.avro.avro_samples import plain_values

TYPED_ID = UUID(int=7)
TYPED_SCHEMA = new_schema(
    parse_ddl(
        "id BIGINT NOT NULL, s STRING, d DOUBLE, dec DECIMAL(9,2), b BINARY, at TIMESTAMP,"
        " a ARRAY<STRUCT<x: STRING NOT NULL>>, m MAP<STRING, DOUBLE>, im MAP<INT, DATE>"
    ),
    ["id"],
)
TYPED_PLAN = plan(TYPED_SCHEMA, metadata=["_offset", "_timestamp", "_headers", "_deleted"])

VERSIONS = [
    (key, version)
    for ranges in (SERVED_RANGES, INTERNAL_RANGES, OWN_RANGES)
    for key, (oldest, newest) in ranges.items()
    for version in range(oldest, newest + 1)
]
"""Every API in every version that is served, to clients, brokers and our own sinks."""

MAX_BYTES = 4 << 20
"""Of one batch when it is decompressed: far more than an input can hold by itself."""

BASE_S = 0.3
PER_BYTE_S = 50e-6
"""Processor time that an input may take, of some bytes: what is quadratic in 4,000 takes more, also
where each line is watched."""

BASE_BYTES = 1 << 20
PER_BYTE_BYTES = 1000
"""Memory that a request may take: an item of one byte becomes an object of some hundred."""

_CHOICE = struct.Struct(">H")
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAGIC_AT = 16
_CRC_AT = 17


def request_input(key: int, version: int, rest: bytes) -> bytes:
    """`rest`: what comes behind the correlation id: client id, perhaps tags, body."""
    return _CHOICE.pack(VERSIONS.index((key, version))) + rest


def request(data: bytes) -> None:
    """As a frame of a client."""
    if len(data) < _CHOICE.size:
        return
    (choice,) = _CHOICE.unpack_from(data)
    key, version = VERSIONS[choice % len(VERSIONS)]
    frame = struct.pack(">hhi", key, version, 7) + data[_CHOICE.size :]
    with _refusing(InvalidRequestError):
        header, body = parse_request_header(memoryview(frame))
        assert (header.api_key, header.api_version) == (key, version)
        spec_for(key).decode_request(version, body)


def records_input(way: int, codec: Codec, batch: bytes) -> bytes:
    """See `records`."""
    return bytes([way | codec << 2]) + batch


def records(data: bytes) -> None:
    """As records that a producer sends, that a compacted topic takes, that a consumer reads and
    that a mirror copies. Ways: 0 as they are, 1 with a right length and checksum, 2 compressed
    besides, 3 as what a codec is to decompress."""
    if not data:
        return
    way, codec = data[0] & 3, Codec((data[0] >> 2) % len(Codec))
    found = bytearray(data[1:])
    if way and len(found) >= HEADER_BYTES:
        found = _sealed(found, way, codec)
    view = memoryview(bytes(found))
    with _refusing(KafkaError):
        check_keys(view, validate_for_append(view, max_message_bytes=1 << 20))
    with _refusing(KafkaError):
        decode_batches(view, include_headers=True, max_decompressed_bytes=MAX_BYTES)
    with _refusing(KafkaError):
        for copied in copied_batches([view], start_offset=1):
            # What is sent on is what a leader takes.
            validate_for_append(copied.batch.data, max_message_bytes=1 << 30)


def _sealed(batch: bytearray, way: int, codec: Codec) -> bytearray:
    if way == 2:
        batch[HEADER_BYTES:] = compress(codec, bytes(batch[HEADER_BYTES:]))
    if way >= 2:
        (attributes,) = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)
        _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes & ~CODEC_MASK | codec)
    batch[_MAGIC_AT] = MAGIC
    _LENGTH.pack_into(batch, LENGTH_END - _LENGTH.size, len(batch) - LENGTH_END)
    _CRC.pack_into(batch, _CRC_AT, compute_crc(batch, 0, len(batch)))
    return batch


LOG_IN_WAYS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TOKENS_APART = b"\n\n"
SCRAM_FIRST = b"n,,n=alice,r=abc"


def log_in_input(way: str, *tokens: bytes, is_begun: bool = False) -> bytes:
    """See `log_in`."""
    return bytes([LOG_IN_WAYS.index(way) | is_begun << 2]) + TOKENS_APART.join(tokens)


def typed_input(way: int, batch: bytes) -> bytes:
    """See `typed`."""
    return bytes([way]) + batch


def typed(data: bytes) -> None:
    """As batches of a typed topic. Ways: 0 as they are, 1 with right lengths and checksums, 2 as a
    projected answer, 3 as the JSON record of a foreign client."""
    if not data:
        return
    way, found = data[0] & 3, bytearray(data[1:])
    with _refusing(KafkaError):
        if way == 3:
            (batch,) = encode_batches(pa.array([bytes(found)], pa.binary()))
            view = memoryview(batch.data)
            typed_from_json(view, read_header(view), TYPED_SCHEMA, TYPED_ID)
            return
        if way == 1 and len(found) > HEADER_BYTES:
            found = _typed_and_sealed(found)
        view = memoryview(bytes(found))
        for position, header in iter_headers(view):
            batch_view = view[position : position + header.size_in_bytes]
            if is_typed(header):
                check_typed_batch(header, batch_view, schema=TYPED_SCHEMA, topic_id=TYPED_ID)
                as_json_batches(batch_view, header, TYPED_SCHEMA)
        for _ in iter_typed_decoded(view, TYPED_PLAN, framed=way == 2, topic_schema=TYPED_SCHEMA):
            pass


def _typed_and_sealed(found: bytearray) -> bytearray:
    """Give header and directory, if there is room for one, the checksums that are right."""
    section = found[HEADER_BYTES:]
    if len(section) >= HEAD_BYTES:
        size = min(max(int.from_bytes(section[4:8], "big"), HEAD_BYTES), len(section))
        section[:8] = b"HRT1" + size.to_bytes(4, "big")
        section[8:12] = crc32c(section[12:size]).to_bytes(4, "big")
    found[HEADER_BYTES:] = section
    header = read_header(bytes(8) + (len(found) - LENGTH_END).to_bytes(4, "big") + found[12:])
    seal(found, 0, header._replace(magic=MAGIC, attributes=TYPED_BIT))
    return found


AVRO_SCHEMA = parse_avro_schema(
    """{"type": "record", "name": "R", "fields": [
        {"name": "i", "type": "int"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "x", "type": {"type": "fixed", "name": "X", "size": 3}},
        {"name": "n", "type": {"type": "array", "items": "long"}},
        {"name": "t", "type": {"type": "array", "items": "string"}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
        {"name": "u", "type": ["boolean", "null", "E", {"type": "array", "items": ["null", {
            "type": "record", "name": "W", "fields": [
                {"name": "a", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "b", "type": ["null", "string"]}]}]}]}]}"""
)
AVRO_RECORD = b"\2\0\2\1\2abc\0\0\0\2"
"""Such a record."""
_AVRO_READER = parse_avro_schema(
    """{"type": "record", "name": "R", "fields": [
        {"name": "renamed", "type": ["null", "double"], "aliases": ["i"]},
        {"name": "s", "type": "bytes"},
        {"name": "added", "type": {"type": "array", "items": "int"}, "default": [1]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["B"]}},
        {"name": "n", "type": {"type": "array", "items": "float"}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
        {"name": "u", "type": [{"type": "array", "items": ["null", {
            "type": "record", "name": "W", "fields": [{"name": "b", "type": "string"}]}]}]}]}"""
)
_AVRO_WAYS = (
    Decoder(AVRO_SCHEMA),
    Decoder(AVRO_SCHEMA, ["t"]),
    Resolver(AVRO_SCHEMA, AVRO_SCHEMA),
    Resolver(AVRO_SCHEMA, _AVRO_READER),
)
_FRAMING = bytes(FRAMING_BYTES)


def avro(data: bytes) -> None:
    """As a record of Avro between two others, which stay as they are: its framing, its body, and
    what another schema has of it. Its lists are read in rounds and one by one to the same end."""
    framed = cut(pa.array([_FRAMING + AVRO_RECORD, data, None, _FRAMING + data], pa.binary()))
    assert set(framed.errors) <= {1}
    rows = np.flatnonzero(framed.ids >= 0)
    bodies = [None, data[FRAMING_BYTES:], None, data]
    assert framed.bodies(rows[1:]).to_pylist() == [bodies[row] for row in rows[1:].tolist()]
    for way in _AVRO_WAYS:
        for_both = []
        for few in (1, 200):
            list_reader._FEW_ROWS = few
            found = way.decode(pa.array([AVRO_RECORD, data, AVRO_RECORD], pa.binary()))
            found.batch.validate(full=True)
            assert {each.row for each in found.damaged} <= {0, 1, 2}
            assert found.batch.slice(0, 1).equals(found.batch.slice(2, 1))
            # Nothing is equal to NaN but its text.
            values = str([plain_values(column) for column in found.batch.columns])
            for_both.append((found.damaged, values))
        assert for_both[0] == for_both[1]
        if isinstance(way, Decoder):
            assert {each.row for each in found.damaged} <= {1}


def log_in(data: bytes) -> None:
    """As the tokens of a client that knows no password: it is never let in. `is_begun`: its first
    token was of the form."""
    if not data:
        return
    server = _server(LOG_IN_WAYS[data[0] & 3])
    if data[0] & 4 and isinstance(server, ScramServer):
        server.respond(SCRAM_FIRST)
    with _refusing(LogInRefusedError):
        for token in data[1:].split(TOKENS_APART)[:4]:
            server.respond(token)
    assert server.authenticated is None


def _server(way: str) -> SaslServerMechanism:
    if way == "PLAIN":
        return PlainServer(lambda user, password: False)
    if way == "OAUTHBEARER":
        return OAuthBearerServer(_token_check())
    mechanism = ScramMechanism.named(way)
    credential = ScramDecoys(b"key").credential(mechanism, "alice")
    return ScramServer(mechanism, lambda _: FoundCredential(credential, True), "def")


@functools.cache
def _token_check() -> TokenCheck:
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return TokenCheck(TokenRules(), lambda _: TokenKey(key=key, algorithms=("ES256",)))


@contextmanager
def _refusing(errors: type[HeadraceError]) -> Iterator[None]:
    try:
        yield
    except errors as error:
        text = str(error)
        assert text, f"an error without a word: {error!r}"
        assert "\n" not in text, f"an error of several lines: {text!r}"


def within_time(target: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """The target, which must not take longer than its input's length allows."""

    def seconds(data: bytes) -> float:
        begun_s = time.thread_time()
        target(data)
        return time.thread_time() - begun_s

    def timed(data: bytes) -> None:
        allowed_s = BASE_S + PER_BYTE_S * len(data)
        spent_s = seconds(data)
        if spent_s > allowed_s:
            # What is imported on first use is none of the input's cost.
            spent_s = seconds(data)
        assert spent_s <= allowed_s, f"{len(data)} bytes took {spent_s:.2f} s of the processor"

    return timed


def within_memory(target: Callable[[bytes], object], data: bytes) -> None:
    """Run the target, which must not take more memory than its input's length allows."""
    tracemalloc.start()
    try:
        target(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    allowed = BASE_BYTES + PER_BYTE_BYTES * len(data)
    assert peak <= allowed, f"{len(data)} bytes took {peak} bytes of memory"


TARGETS: dict[str, Callable[[bytes], None]] = {
    "request": within_time(request),
    "records": within_time(records),
    "log_in": within_time(log_in),
    "typed": within_time(typed),
    "avro": within_time(avro),
}
