"""Inputs to begin with: a message of every API in its newest and its oldest version, as Kafka's own
schemas have it, records good and bad in every compression, typed batches, and log-ins by each
mechanism."""

import warnings
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings

from storage_engine.protocol.apis.registry import SERVED_RANGES, spec_for
from storage_engine.protocol.records.record_batch import Codec
from storage_engine.protocol.typed.arrow_types import arrow_schema
from storage_engine.protocol.typed.projection import WANT_FRAMES, TypedWant
from storage_engine.protocol.typed.typed_encoder import iter_typed
from storage_engine.tests.fuzz.targets import (
    AVRO_RECORD,
    SCRAM_FIRST,
    TYPED_ID,
    TYPED_PLAN,
    TYPED_SCHEMA,
    VERSIONS,
    log_in_input,
    records_input,
    request_input,
    typed_input,
)
from storage_engine.tests.protocol import hostile_batches
from storage_engine.tests.protocol.apis import kio_messages
from storage_engine.tests.protocol.naive_codec import NaiveRecord, encode_batch
from storage_engine.tests.protocol.typed.in_memory import project

_NO_CLIENT_ID = b"\xff\xff"
_NO_TAGS = b"\x00"


def write_seeds(target: str, folder: Path) -> None:
    """A file for each."""
    every = {
        "request": _requests,
        "records": _records,
        "log_in": _log_ins,
        "typed": _typed_batches,
        "avro": _avro_records,
    }[target]
    for number, seed in enumerate(every()):
        (folder / f"seed-{number:04}").write_bytes(seed)


def _requests() -> Iterator[bytes]:
    for key in SERVED_RANGES:
        spec = spec_for(key)
        versions = kio_messages.versions_in_kio(spec)
        for version in {versions[0], versions[-1]}:
            tags = _NO_TAGS if spec.is_flexible(version) else b""
            yield request_input(key, version, _NO_CLIENT_ID + tags + _message(key, version))
    for key, version in VERSIONS:
        yield request_input(key, version, _NO_CLIENT_ID + bytes(12))


def _log_ins() -> Iterator[bytes]:
    token = b".".join(
        urlsafe_b64encode(part).rstrip(b"=")
        for part in (b'{"alg":"ES256","kid":"1"}', b'{"sub":"a","exp":1,"iat":1}', bytes(64))
    )
    yield log_in_input("PLAIN", b"\0alice\0secret")
    yield log_in_input("PLAIN", b"alice\0alice\0secret")
    yield log_in_input("OAUTHBEARER", b"n,,\x01auth=Bearer " + token + b"\x01\x01", b"\x01")
    yield log_in_input("OAUTHBEARER", b"n,a=a,\x01auth=Bearer " + token + b"\x01k=v\x01\x01")
    for way in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        final = b"c=biws,r=abcdef,p=" + b64encode(bytes(32 if way.endswith("6") else 64))
        yield log_in_input(way, SCRAM_FIRST, final)
        yield log_in_input(way, final, is_begun=True)
        yield log_in_input(way, final.replace(b"abcdef", b"abcabcdef"), is_begun=True)
        yield log_in_input(way, b"y,,n=a=2C=3D,r=abc,e=x", final)


def _message(key: int, version: int) -> bytes:
    """The largest of a few."""
    found: list[bytes] = []

    @settings(
        max_examples=3,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(kio_messages.messages(kio_messages.kio_class(key, version, "request")))
    def collect(message: object) -> None:
        found.append(kio_messages.encode(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collect()
    return max(found, key=len)[:600]


def _records() -> Iterator[bytes]:
    for codec in Codec:
        for header in ([], [("name", b"value"), ("none", None)]):
            rows = [
                NaiveRecord(n, 5 + n, b"key" if n % 2 else None, b"v" * n, header) for n in range(4)
            ]
            plain = encode_batch(rows)
            yield records_input(2, codec, plain)
            yield records_input(3, codec, encode_batch(rows, codec=codec))
    for blob in (*hostile_batches.ODD_BUT_FINE.values(), hostile_batches.message_set(1)):
        yield records_input(0, Codec.NONE, blob)
    for blob, _ in hostile_batches.REFUSED.values():
        yield records_input(1, Codec.NONE, blob[:600])


def _typed_batches() -> Iterator[bytes]:
    rows = pa.RecordBatch.from_pylist(
        [
            {"id": 1, "s": "x", "d": 1.5, "b": b"y", "a": [{"x": "z"}], "m": [("k", 2.0)]},
            {"id": 2, "s": "x", "dec": Decimal("1.25"), "im": [(3, None)]},
        ]
        * 40,
        arrow_schema(TYPED_SCHEMA.latest.columns),
    )
    want = TypedWant(WANT_FRAMES, TYPED_PLAN.column_ids)
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        (batch,) = iter_typed(
            rows, TYPED_SCHEMA, TYPED_SCHEMA.latest, TYPED_ID, compression=codec, now_ms=5
        )
        yield typed_input(0, bytes(batch.data))
        yield typed_input(1, bytes(batch.data))
        answer = project(batch.data, want, TYPED_SCHEMA, limit_bytes=1 << 20)
        yield typed_input(2, b"".join(answer.pieces))
    yield typed_input(3, b'{"id":1,"s":"\\u00e9","d":"NaN","dec":1.5,"b":"YQ==","m":{"a":1}}')
    yield typed_input(3, b'{"id":1,"at":"2026-01-31T00:00:00Z","a":[{"x":"y"}],"im":[]}')


def _avro_records() -> Iterator[bytes]:
    head = b"\1\2\4\xc3\xa9\6\xff\0\0\0abc"
    lists = b"\4\2\x80\1\0" + b"\3\x08\4yz\0\0" + b"\2\2k\2" + bytes(8) + b"\0\0"
    in_a_union = b"\0\0\0" + b"\6\4\0\2\4\2\2w\0"
    for record in (AVRO_RECORD, head + lists + b"\4\2", head + in_a_union):
        yield record
        yield record[: len(record) // 2]
        yield record[:-1]
        yield record + b"\0"
        yield bytes(5) + record
