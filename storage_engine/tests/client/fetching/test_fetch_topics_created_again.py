"""A topic that is deleted and created again is another one: who follows one topic, as a mirror
does, gets nothing of the other, however far that has grown by then (R-CLI6).
"""

from uuid import UUID

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.mirror.source import MirrorSource, is_gone
from storage_engine.tests.client.fetching.ranges import read_range
from storage_engine.tests.client.support.batches import append_batches

T0 = TopicPartition("t", 0)
POLLS = 20


@pytest.fixture(params=[(4, 17), (4, 12)], ids=["by id", "by name"])
def filled(fake, request):
    """By brokers that know ids in fetches, and by older ones."""
    fake.api_versions[1] = request.param
    fake.add_topic("t", [1])
    append_batches(fake, 30)
    return fake


@pytest.fixture
def source(filled):
    fake = filled
    with Cluster(fake.bootstrap_servers, request_timeout_ms=2000, deadline_ms=5000) as cluster:
        made = MirrorSource("east", cluster, print)
        (topic_id, _) = made.topics()["t"]
        made.read({T0: 0}, {"t": topic_id})
        yield made
        made.close()


def poll(source):
    for _ in range(POLLS):
        if found := source.poll(200):
            return found
    raise AssertionError("nothing comes")


def test_a_topic_that_was_created_again_and_has_outgrown_the_position_is_not_read_on(fake, source):
    assert poll(source)[0].next_offset == 90
    fake.create_again("t", [1])
    append_batches(fake, 60)
    fake.wake()
    with pytest.raises(KafkaError, match="topic 't' was deleted, and is another one now") as raised:
        poll(source)
    assert is_gone(raised.value)
    assert source.positions == {T0: 90}
    (new_id, _) = source.topics()["t"]
    source.read({T0: 0}, {"t": new_id})
    assert poll(source)[0].next_offset == 180


def test_a_topic_that_is_there_still_is_read_on_also_from_another_leader(fake, source):
    poll(source)
    fake.move_leader("t", 0, 2)
    append_batches(fake, 5)
    fake.wake()
    (found,) = poll(source)
    assert (found.start_offset, found.next_offset) == (90, 105)


def test_what_is_left_of_a_range_is_not_read_of_a_topic_that_was_created_again(filled, cluster):
    chunks = read_range(cluster, T0, 0, 90, max_bytes=400, topic_id=filled.topic_ids["t"])
    found = [next(chunks)]
    filled.create_again("t", [1])
    append_batches(filled, 60)
    with pytest.raises(KafkaError, match="topic 't' was deleted, and is another one now"):
        found.extend(chunks)
    # What was on its way already is of the old topic.
    assert found[-1].next_offset < 90


def test_a_range_of_another_topic_than_has_the_name_now_is_not_read(filled, cluster):
    filled.create_again("t", [1])
    append_batches(filled, 30)
    with pytest.raises(KafkaError, match="is another one now"):
        list(read_range(cluster, T0, 0, 90, topic_id=UUID(int=77)))


def test_a_topic_that_is_added_later_is_read_by_its_id(filled, cluster):
    reader = BatchFetcher(cluster, {}, topic_ids={}, most_in_flight=0)
    reader.read_from(T0, 0, topic_id=filled.topic_ids["t"])
    while not (found := reader.poll(200)):
        pass
    assert found[0].next_offset == 90
    filled.create_again("t", [1])
    append_batches(filled, 60)
    with pytest.raises(KafkaError, match="is another one now"):
        for _ in range(POLLS):
            reader.poll(200)
    reader.read_from(T0, 0, topic_id=filled.topic_ids["t"])
    while not (found := reader.poll(200)):
        pass
    assert found[0].next_offset == 180
    reader.close()


def test_a_jump_in_a_topic_does_not_outlive_it(fake, source):
    """The next transaction would take it for a position in the new topic, whose first records would
    be left out."""
    fake.partition("t").start_offset = 60
    del fake.partition("t").batches[:20]
    poll(source)
    fake.create_again("t", [1])
    append_batches(fake, 1)
    fake.wake()
    with pytest.raises(KafkaError):
        poll(source)
    (new_id, _) = source.topics()["t"]
    source.read({T0: 0}, {"t": new_id})
    assert source.jumps() == {}


def test_a_jump_is_told_once(fake, source):
    fake.partition("t").start_offset = 60
    del fake.partition("t").batches[:20]
    poll(source)
    assert source.jumps() == {T0: 60}
    assert source.jumps() == {}
