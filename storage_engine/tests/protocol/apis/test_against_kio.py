"""Every served API, version and direction against an independent codec.

kio encodes a random message, we decode it, compare the fields, and encode it again: the bytes must
be the same, so that each side reads what the other writes.
"""

import dataclasses
import datetime
import functools
from typing import Any

from hypothesis import given, settings

from storage_engine.protocol.apis.registry import SERVED_RANGES, spec_for
from storage_engine.protocol.apis.wire import NO_TOPIC_ID
from storage_engine.tests.protocol.apis import flattened, kio_messages
from storage_engine.tests.protocol.apis.buffers import joined
from storage_engine.tests.protocol.apis.each_api import in_each_version
from storage_engine.tests.sampling import ALL_FAULTS

EXAMPLES = 8 if ALL_FAULTS else 2
"""Messages of each version and direction: versions of an API differ in a few fields only."""

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)

PINNED = {
    # sent by controllers or for snapshots only; our messages have no place for them
    (1, "request"): ("cluster_id", "replica_directory_id", "high_watermark"),
    (1, "response"): ("snapshot_id",),
    (18, "response"): ("zk_migration_ready",),
}

CASES = [
    (key, version, kind)
    for key in SERVED_RANGES
    for version in kio_messages.versions_in_kio(spec_for(key))
    for kind in ("request", "response")
]


@in_each_version(CASES)
def test_what_kio_writes_we_read_and_write_again_byte_for_byte(
    key: int, version: int, kind: str
) -> None:
    spec = spec_for(key)
    decode = spec.decode_request if kind == "request" else spec.decode_response
    encode = spec.encode_request if kind == "request" else spec.encode_response
    kio_class = kio_messages.kio_class(key, version, kind)
    strategy = kio_messages.messages(kio_class, PINNED.get((key, kind), ()))
    adapt = functools.partial(flattened.make_expressible, key, version, kind)

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(strategy.map(adapt))
    def check(theirs: Any) -> None:
        data = kio_messages.encode(theirs)
        ours = decode(version, memoryview(data))
        flatten = flattened.FLATTEN.get((key, kind))
        if flatten is None:
            _assert_same_fields(theirs, ours)
        else:
            assert ours == flatten(theirs)
        again = joined(encode(version, ours))
        assert again == data

    check()


def _assert_same_fields(theirs: Any, ours: Any) -> None:
    """Structs with kio's fields in kio's names, except that kio drops the unit of a time."""
    for field in dataclasses.fields(theirs):
        value = getattr(theirs, field.name)
        try:
            ours_value = getattr(ours, field.name)
        except AttributeError:
            ours_value = getattr(ours, f"{field.name}_ms")
        _assert_same(value, ours_value)


def _assert_same(theirs: Any, ours: Any) -> None:
    if isinstance(theirs, tuple):
        assert len(theirs) == len(ours)
        for item, our_item in zip(theirs, ours, strict=True):
            _assert_same(item, our_item)
    elif dataclasses.is_dataclass(theirs):
        _assert_same_fields(theirs, ours)
    elif isinstance(theirs, datetime.timedelta):
        assert flattened.milliseconds(theirs) == ours
    elif isinstance(theirs, datetime.datetime):
        assert flattened.milliseconds(theirs - _EPOCH) == ours
    elif theirs is None and ours == NO_TOPIC_ID:
        pass
    else:
        assert theirs == ours
