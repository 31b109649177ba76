"""The messages of simulated clients are ones that brokers take."""

from simulation.world.requests import enlist_request, make_batch
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import validate_for_append


def test_a_batch_is_sound_and_as_it_was_asked_for():
    batch = make_batch(3, payload=b"abc", producer=(7, 2, 5), timestamp_ms=9)
    ((_, header),) = validate_for_append(batch, max_message_bytes=1 << 20)
    assert (header.records_count, header.last_offset_delta, header.max_timestamp) == (3, 2, 9)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 5)
    assert not batch.readonly


def test_partitions_are_enlisted_topic_by_topic():
    tps = [TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("a", 2)]
    request = enlist_request("id", 7, 1, tps)
    rows = {each.name: list(each.partitions) for each in request.v3_and_below_topics}
    assert rows == {"a": [0, 2], "b": [1]}
