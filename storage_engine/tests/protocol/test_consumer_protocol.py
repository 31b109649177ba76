"""What members of a group tell one another is read by other clients, too."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.groups.consumer_protocol import subscribed_topics
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

TOPICS = st.sets(st.text("abcé", min_size=1, max_size=4), max_size=4)


@given(TOPICS)
def test_subscriptions_are_read_by_others(topics):
    encoded = encode_subscription(topics)
    assert subscribed_topics(encoded) == topics
    assert set(ConsumerProtocolSubscription.decode(encoded).topics) == topics


@given(st.sets(st.builds(TopicPartition, st.text("abcé", min_size=1), st.integers(0, 99))))
def test_assignments_are_read_by_others(partitions):
    encoded = encode_assignment(partitions)
    assert decode_assignment(encoded) == tuple(sorted(partitions))
    theirs = ConsumerProtocolAssignment.decode(encoded)
    assert {(tp.topic, tp.partition) for tp in theirs.partitions()} == partitions


USER_DATA_BYTES = 4
"""A length of -1, at the end of an assignment; nobody looks at it."""


@given(st.binary(max_size=40))
def test_any_bytes_are_an_assignment_or_told_to_be_none(data):
    with contextlib.suppress(CorruptRecordError):
        partitions = decode_assignment(data)
        assert set(decode_assignment(encode_assignment(set(partitions)))) == set(partitions)


@given(st.sets(st.builds(TopicPartition, st.text("abcé", min_size=1), st.integers(0, 99))))
def test_an_assignment_that_is_cut_off_is_told(partitions):
    encoded = encode_assignment(partitions)
    for length in range(1, len(encoded) - USER_DATA_BYTES):
        with pytest.raises(CorruptRecordError):
            decode_assignment(encoded[:length])
