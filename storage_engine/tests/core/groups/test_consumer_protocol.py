"""The messages between members, as a coordinator reads and writes them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.groups.consumer_protocol import (
    decode_subscription,
    read_assignment,
    subscribed_topics,
    write_assignment,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

parts = st.dictionaries(
    st.text(min_size=1, max_size=5), st.frozensets(st.integers(0, 99), min_size=1), max_size=4
)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def subscription(version: int, topics, *, user_data=b"", owned=None, rack=None) -> bytes:
    data = struct.pack(">hi", version, len(topics)) + b"".join(map(text, topics))
    data += struct.pack(">i", len(user_data)) + user_data
    if version >= 1:
        data += struct.pack(">i", len(owned or {}))
        for topic, numbers in (owned or {}).items():
            data += text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    if version >= 2:
        data += struct.pack(">i", 7)
    if version >= 3:
        data += struct.pack(">h", -1) if rack is None else text(rack)
    return data


@given(st.integers(0, 3), st.lists(st.text(max_size=5)), parts, st.binary(max_size=5))
def test_a_subscription_of_each_version_is_read(version, topics, owned, user_data):
    data = subscription(version, topics, user_data=user_data, owned=owned, rack="r")
    found = decode_subscription(data + b"later fields")
    assert found is not None
    assert (found.version, found.topics) == (version, frozenset(topics))
    assert found.owned == (owned if version >= 1 else {})
    assert found.rack_id == ("r" if version >= 3 else None)
    assert subscribed_topics(data) == found.topics


def test_our_clients_subscription_is_read():
    found = decode_subscription(encode_subscription(["u", "t"]))
    assert found is not None and found.topics == {"t", "u"} and not found.owned


@given(st.integers(0, 3), parts)
def test_an_assignment_is_written_as_clients_read_it(version, partitions):
    data = write_assignment(version, partitions)
    assert data[:2] == struct.pack(">h", version)
    expected = sorted(TopicPartition(t, n) for t, numbers in partitions.items() for n in numbers)
    assert list(decode_assignment(data)) == expected
    found = read_assignment(data)
    assert found is not None and (found.partitions, found.user_data) == (partitions, b"")


def test_the_assignment_of_our_clients_is_read_and_so_is_none():
    found = read_assignment(encode_assignment([TopicPartition("t", 3)]))
    assert found is not None and found.partitions == {"t": {3}}
    empty = read_assignment(b"")
    assert empty is not None and empty.partitions == {}


def test_user_data_is_told():
    data = write_assignment(0, {"t": [1]})[:-4] + struct.pack(">i", 2) + b"me"
    found = read_assignment(data)
    assert found is not None and found.user_data == b"me"


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    decode_subscription(data)
    read_assignment(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hi", 0, 1) + struct.pack(">h", -1),
        struct.pack(">hi", 0, 1) + text("t"),
        struct.pack(">hi", 0, 1) + struct.pack(">h", 1) + b"\xff" + struct.pack(">i", 0),
    ],
)
def test_a_broken_subscription_is_none(data):
    assert decode_subscription(data) is None


@pytest.mark.parametrize("length", range(1, 15))
def test_an_assignment_that_is_cut_is_none(length):
    assert read_assignment(write_assignment(0, {"t": [1]})[:length]) is None
