"""The metadata that all brokers get alike is made and encoded once, and each gets all of it."""

from dataclasses import replace

import pytest

from storage_engine.broker.controller.delivery_requests import MetadataParts, OrderSender, rounds_of
from storage_engine.core.control.controller_events import Loaded
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition
from storage_engine.protocol.apis import update_metadata
from storage_engine.tests.core.control.controller_bench import Driven, brokers, state, topic

SENDER = OrderSender(BrokerId(1), ControllerEpoch(9))
COUNT = 40


def loaded() -> list:
    """The deliveries of a controller that has loaded a cluster of three brokers."""
    driven = Driven()
    driven.step(
        Loaded(
            brokers=brokers(1, 2, 3),
            topics={"t": topic("t", *[(1, 2, 3)] * COUNT)},
            states={TopicPartition("t", p): state(1, 1, 2, 3) for p in range(COUNT)},
        )
    )
    return [effect.delivery for effect in driven.deliveries]


def metadata_request(delivery, shared=None) -> update_metadata.UpdateMetadataRequest:
    for requests in rounds_of(SENDER, delivery, shared):
        for _, message in requests:
            if isinstance(message, update_metadata.UpdateMetadataRequest):
                return message
    raise AssertionError("no UpdateMetadata")


def shared_partitions(delivery) -> update_metadata.SharedPartitions:
    partitions = metadata_request(delivery).partitions
    assert isinstance(partitions, update_metadata.SharedPartitions)
    return partitions


def encoded(message) -> bytes:
    return b"".join(update_metadata.API.encode_request(0, message))


def test_a_new_controller_makes_and_encodes_the_metadata_of_all_brokers_once():
    deliveries = loaded()
    assert len(deliveries) == 3
    assert all(each.metadata is deliveries[0].metadata for each in deliveries)
    shared = MetadataParts()
    requests = [metadata_request(each, shared) for each in deliveries]
    pieces = [update_metadata.API.encode_request(0, request)[1] for request in requests]
    assert all(piece is pieces[0] for piece in pieces)


def test_shared_requests_say_what_requests_made_alone_would_say():
    shared = MetadataParts()
    for delivery in loaded():
        message = metadata_request(delivery, shared)
        alone = replace(message, partitions=list(message.partitions))
        assert encoded(message) == encoded(alone)
        body = memoryview(encoded(message))
        assert list(update_metadata.API.decode_request(0, body).partitions) == list(
            metadata_request(delivery).partitions
        )
        assert message.broker_epoch == delivery.broker_epoch
        assert message.order_number == delivery.number


def test_what_is_encoded_in_several_turns_is_what_is_encoded_in_one():
    delivery = loaded()[0]
    in_turns = shared_partitions(delivery)
    turns = 1
    while not in_turns.encode_more(15):
        turns += 1
    assert turns == 3, "of 40 partitions"
    assert in_turns.encoded() == shared_partitions(delivery).encoded()


def test_a_partition_that_no_request_can_hold_is_found_each_time():
    """So the delivery is sent without it, whichever turn has met it first."""
    delivery = loaded()[0]
    last = replace(delivery.metadata[-1], assigned=(BrokerId(1 << 40),))
    partitions = shared_partitions(replace(delivery, metadata=(*delivery.metadata[:-1], last)))
    assert not partitions.encode_more(15)
    for _ in range(2):
        with pytest.raises(Exception, match="format requires"):
            while not partitions.encode_more(15):
                pass
        with pytest.raises(Exception, match="format requires"):
            partitions.encoded()


def test_other_live_brokers_or_another_topic_that_is_gone_are_not_taken_for_the_same():
    shared = MetadataParts()
    first = loaded()[0]
    metadata_request(first, shared)
    without_third = replace(first, brokers=first.brokers[:2])
    message = metadata_request(without_third, shared)
    assert {tuple(item.offline_replicas) for item in message.partitions} == {(3,)}
    message = metadata_request(replace(without_third, removed_topics=("gone",)), shared)
    assert message.removed_topics == ["gone"]
    message = metadata_request(replace(first, broker_epoch=BrokerEpoch(77)), shared)
    assert message.removed_topics == []
    assert {tuple(item.offline_replicas) for item in message.partitions} == {()}
