"""Bytes that are no message, for each API: InvalidRequestError and nothing else, soon."""

import functools
import random
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.protocol.apis import metadata
from storage_engine.protocol.apis.registry import (
    INTERNAL_RANGES,
    OWN_RANGES,
    SERVED_RANGES,
    spec_for,
)
from storage_engine.protocol.messages import alter_user_scram_credentials
from storage_engine.tests.protocol.apis import kio_messages
from storage_engine.tests.protocol.apis.decoding import SOON_S, decode, refuses
from storage_engine.tests.protocol.apis.each_api import in_each_version
from storage_engine.tests.sampling import ALL_FAULTS

MESSAGES = 3 if ALL_FAULTS else 1
"""Random ones, of each kind and version."""

CHANGES = 60 if ALL_FAULTS else 20
"""The number of cuts, or of changed bytes, for each message."""

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
