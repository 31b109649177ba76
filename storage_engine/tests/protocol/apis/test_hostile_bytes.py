"""Bytes that are no message: InvalidRequestError and nothing else, soon, without much memory."""

import functools
import random
import struct
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis import metadata
from storage_engine.protocol.apis.registry import (
    INTERNAL_RANGES,
    OWN_RANGES,
    SERVED_RANGES,
    spec_for,
)
from storage_engine.protocol.apis.spec import MAX_ITEMS
from storage_engine.protocol.messages import alter_user_scram_credentials
from storage_engine.tests.protocol.apis import kio_messages
from storage_engine.tests.protocol.apis.each_api import in_each_version
from storage_engine.tests.sampling import ALL_FAULTS

MESSAGES = 3 if ALL_FAULTS else 1
"""Random ones, of each kind and version."""

CHANGES = 60 if ALL_FAULTS else 20
"""Of each message: cuts, or bytes."""

SOON_S = 30.0
"""Far above what any of these takes, far below a hang, also on a loaded machine."""

KINDS = ("request", "response")

SERVED = [
    (key, version, kind)
    for key in SERVED_RANGES
    for version in kio_messages.versions_in_kio(spec_for(key))
    for kind in KINDS
]
EVERY_VERSION = [
    (key, version, kind)
    for ranges in (SERVED_RANGES, INTERNAL_RANGES, OWN_RANGES)
    for key, (low, high) in ranges.items()
    for version in range(low, high + 1)
    for kind in KINDS
]
FLEXIBLE = [
    (key, version, kind)
    for key in SERVED_RANGES
    for version in kio_messages.versions_in_kio(spec_for(key))
    if spec_for(key).is_flexible(version)
    for kind in KINDS
]

TAGGED = (
    "cluster_id",
    "finalized_features",
    "finalized_features_epoch",
    "node_endpoints",
    "replica_state",
    "supported_features",
    "zk_migration_ready",
)
"""Fields that travel as tagged fields of a whole message."""


def decode(key: int, version: int, kind: str, data: bytes) -> Any:
    spec = spec_for(key)
    decoder = spec.decode_request if kind == "request" else spec.decode_response
    return decoder(version, memoryview(data))


@functools.cache
def few_messages(
    key: int, version: int, kind: str, pinned: tuple[str, ...]
) -> list[tuple[bytes, int]]:
    """Bytes of random messages, a seed beside each. Made once: to make them takes far longer than
    to read them."""
    strategy = kio_messages.messages(kio_messages.kio_class(key, version, kind), pinned)
    made = []

    @settings(max_examples=MESSAGES, deadline=None, derandomize=True, database=None)
    @given(strategy.map(kio_messages.encode), st.integers(0, 1000))
    def keep(data: bytes, seed: int) -> None:
        made.append((data, seed))

    keep()
    return made


def for_messages(
    key: int, version: int, kind: str, check: Any, pinned: tuple[str, ...] = ()
) -> None:
    """Calls `check(bytes of a message, a seeded random)` for a few random messages."""
    for data, seed in few_messages(key, version, kind, pinned):
        check(data, random.Random(seed))


def refuses(key: int, version: int, kind: str, data: bytes) -> bool:
    """False for bytes that happen to be a message; any other exception is a failure."""
    try:
        decode(key, version, kind, data)
    except InvalidRequestError:
        return True
    return False


def is_unsupported_version(key: int, kind: str, data: bytes) -> bool:
    """An ApiVersions response with this error is read in any form (KIP-511)."""
    return key == 18 and kind == "response" and data[:2] == b"\x00\x23"


@in_each_version(SERVED)
def test_a_truncated_message_is_an_invalid_request(key: int, version: int, kind: str) -> None:
    def check(data: bytes, choices: random.Random) -> None:
        if is_unsupported_version(key, kind, data):
            return
        for end in choices.sample(range(len(data)), min(len(data), CHANGES)):
            assert refuses(key, version, kind, data[:end]), f"cut at {end} of {data.hex()}"

    for_messages(key, version, kind, check)


UNTIDY = {metadata.API.key, alter_user_scram_credentials.API.key}


@in_each_version(SERVED)
def test_bytes_left_over_are_an_invalid_request_but_do_not_spoil_a_response(
    key: int, version: int, kind: str
) -> None:
    """Nor do they spoil a request of those to which librdkafka is known to append some."""

    def check(data: bytes, choices: random.Random) -> None:
        longer = data + choices.randbytes(choices.randint(1, 9))
        if kind == "request" and key not in UNTIDY:
            assert refuses(key, version, kind, longer)
        else:
            assert decode(key, version, kind, longer) == decode(key, version, kind, data)

    for_messages(key, version, kind, check)


@in_each_version(SERVED)
def test_a_changed_byte_is_read_or_refused_and_never_anything_else(
    key: int, version: int, kind: str
) -> None:
    def check(data: bytes, choices: random.Random) -> None:
        for _ in range(CHANGES if data else 0):
            changed = bytearray(data)
            for _ in range(choices.randint(1, 3)):
                changed[choices.randrange(len(data))] = choices.choice((0, 1, 127, 128, 254, 255))
            refuses(key, version, kind, bytes(changed))

    for_messages(key, version, kind, check)


@in_each_version(EVERY_VERSION)
def test_garbage_is_read_or_refused_soon(key: int, version: int, kind: str) -> None:
    choices = random.Random(version)
    started = time.monotonic()
    for size in (0, 1, 2, 3, 5, 8, 13, 40, 200):
        refuses(key, version, kind, choices.randbytes(size))
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            refuses(key, version, kind, bytes([byte]) * size)
    assert time.monotonic() - started < SOON_S


@in_each_version(FLEXIBLE)
def test_unknown_tagged_fields_are_skipped(key: int, version: int, kind: str) -> None:
    def check(data: bytes, choices: random.Random) -> None:
        assert data[-1] == 0, "a message without tagged fields ends with their number"
        tagged = data[:-1] + b"\x02\x63\x03abc\xff\xff\xff\xff\x0f\x00"
        assert decode(key, version, kind, tagged) == decode(key, version, kind, data)

    for_messages(key, version, kind, check, TAGGED)


def test_counts_and_lengths_that_claim_too_much_allocate_nothing() -> None:
    huge = struct.pack(">i", 2**31 - 1)
    bodies = [
        (3, 1, huge),
        (3, 9, b"\xff\xff\xff\xff\x0f"),
        (0, 7, struct.pack(">hhi", -1, 1, 1) + huge),
        (1, 11, struct.pack(">iiiibii", -1, 1, 1, 1, 0, 0, 0) + huge),
        (19, 2, huge),
        (19, 5, b"\xff\xff\xff\xff\x07"),
    ]
    tracemalloc.start()
    try:
        for key, version, body in bodies:
            assert refuses(key, version, "request", body + bytes(1000))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_varints_of_more_than_five_bytes_or_32_bits_are_refused() -> None:
    assert refuses(3, 9, "request", b"\x80" * 6 + b"\x00" * 10)
    assert refuses(3, 9, "request", b"\x80\x80\x80\x80\x10" + bytes(10))


def test_a_message_of_very_many_small_items_is_refused_soon_and_with_little_memory() -> None:
    items = 4_000_000
    body = struct.pack(">i", items) + bytes(2 * items)  # Metadata for topics of no name
    started = time.monotonic()
    assert refuses(3, 1, "request", body)
    nested = struct.pack(">i", 1) + struct.pack(">h", 0) + struct.pack(">ihi", 1, 1, items)
    assert refuses(19, 2, "request", nested + bytes(8 * items))
    assert time.monotonic() - started < SOON_S


def test_items_are_limited_over_all_arrays_of_a_message() -> None:
    inner = MAX_ITEMS // 3
    assignment = struct.pack(">ii", 0, inner) + bytes(4 * inner)
    body = (
        struct.pack(">i", 1)
        + struct.pack(">h", 0)
        + struct.pack(">ih", 1, 1)
        + struct.pack(">i", 4)
        + assignment * 4
        + struct.pack(">i", 0)
        + struct.pack(">ib", 1000, 0)
    )
    with pytest.raises(InvalidRequestError, match="more than 250000 items"):
        decode(19, 2, "request", body)


def test_many_tagged_fields_take_linear_time() -> None:
    fields = 100_000
    body = b"\x01\x00\x00"  # no topics, two booleans
    count = bytes([fields & 0x7F | 0x80, fields >> 7 & 0x7F | 0x80, fields >> 14])
    started = time.monotonic()
    assert not refuses(3, 11, "request", body + count + b"\x63\x00" * fields)
    assert time.monotonic() - started < SOON_S


def test_the_error_names_the_message_and_what_is_wrong() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        decode(3, 12, "request", b"\x05")
    assert str(raised.value) == (
        "malformed Metadata request of version 12: an array says it has 4 items, 0 bytes are left;"
        " the connection is closed"
    )


def test_names_that_are_not_utf_8_are_refused() -> None:
    assert refuses(3, 1, "request", struct.pack(">ih", 1, 2) + b"\xff\xfe")
    head = struct.pack(">hhiih", -1, 1, 1000, 1, 2) + b"\xff\xfe"
    assert refuses(0, 7, "request", head + struct.pack(">iii", 1, 0, 0))
