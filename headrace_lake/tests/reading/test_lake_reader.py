"""Partitions of many topics are read on from their positions, and each fails by itself."""

import pytest

from headrace_lake.reading.lake_reader import LakeReader, Position
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, LogTruncatedError, UnsupportedVersionError
from storage_engine.core.ids import TopicPartition, topic_id_to_text
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.protocol.records.control_record import encode_marker
from storage_engine.tests.client.fake_cluster import FakeCluster, Fault
from storage_engine.tests.client.support.batches import append_batches, append_records

T0, U0, V0 = (TopicPartition(name, 0) for name in "tuv")
POLLS = 20


@pytest.fixture
def fake():
    made = FakeCluster()
    for topic in "tuv":
        made.add_topic(topic, [1])
    append_batches(made, 30)
    yield made
    made.close()


@pytest.fixture
def reader(fake):
    with Cluster(fake.bootstrap_servers, request_timeout_ms=2000, deadline_ms=5000) as cluster:
        made = LakeReader(cluster)
        yield made
        made.close()


def poll(reader):
    """What comes next, as (partition, start, next)."""
    for _ in range(POLLS):
        if found := reader.poll(200):
            return found
    raise AssertionError("nothing comes")


def failure_of(reader, tp):
    for _ in range(POLLS):
        found = reader.failures()
        if tp in found:
            return found[tp]
        reader.poll(200)
    raise AssertionError("it does not fail")


def consumed(reader):
    (found,) = poll(reader)
    return reader.consumed(found)


def until(reader, condition):
    for _ in range(POLLS):
        if condition():
            return
        reader.poll(200)
    raise AssertionError("it does not come to that")


def fail_once(fake, fault):
    """The next fetch."""
    left = [fault]
    fake.fault = lambda asked: left.pop() if left and asked.api == "Fetch" else None


def wait_for_fetches(fake, reader, count):
    """So many more."""
    wanted = len(fetches_of_t(fake)) + count
    until(reader, lambda: len(fetches_of_t(fake)) >= wanted)


def fetches_of_t(fake):
    """The offsets of fetches, and the epochs that they say of the records before."""
    topic = topic_id_to_text(fake.topic_ids["t"])
    return [
        (each.fetch_offset, each.last_fetched_epoch)
        for asked in list(fake.asked)
        if asked.api == "Fetch"
        for each in asked.message.partitions
        if each.topic == topic
    ]


def append(fake, topic, number):
    append_records(fake, [b"%d" % number] * 3, topic=topic)
    fake.wake()


def test_the_position_is_behind_what_was_consumed(fake, reader):
    reader.begin(T0, Position(0), fake.topic_ids["t"], None)
    (found,) = poll(reader)
    assert reader.consumed(found) == Position(90, 0)


def test_a_topic_that_comes_later_is_read_beside_the_others(fake, reader):
    reader.begin(T0, Position(90, 0), fake.topic_ids["t"], None)
    reader.poll(10)
    append(fake, "u", 1)
    reader.begin(U0, Position(0), fake.topic_ids["u"], None)
    (found,) = poll(reader)
    assert (found.tp, reader.consumed(found)) == (U0, Position(3, 0))


def test_what_was_polled_before_a_partition_began_anew_is_dropped(fake, reader):
    reader.begin(T0, Position(0), fake.topic_ids["t"], None)
    (found,) = poll(reader)
    reader.begin(T0, Position(30, 0), fake.topic_ids["t"], None)
    assert reader.consumed(found) is None
    (again,) = poll(reader)
    assert again.start_offset == 30
    assert reader.consumed(again) == Position(90, 0)
    reader.end(T0)
    assert reader.consumed(again) is None
    assert reader.is_idle


def test_a_leader_that_never_had_what_was_read_is_noticed_by_the_first_fetch(fake, reader):
    """Nothing was read by this reader: it knows of the epoch by the position alone."""
    fake.partition("t").lose_from(10)
    fake.move_leader("t", 0, 2)
    for number in range(70):
        append(fake, "t", number)
    reader.begin(T0, Position(90, 0), fake.topic_ids["t"], None)
    reader.begin(U0, Position(0), fake.topic_ids["u"], None)
    error = failure_of(reader, T0)
    assert isinstance(error, LogTruncatedError)
    assert (error.offset, error.truncation_offset) == (90, 30)
    append(fake, "u", 1)
    (found,) = poll(reader)
    assert found.tp == U0


def test_a_topic_that_was_made_anew_fails_and_is_read_by_its_new_id(fake, reader):
    old_id = fake.topic_ids["t"]
    reader.begin(T0, Position(0), old_id, None)
    poll(reader)
    fake.create_again("t", [1])
    for number in range(40):
        append(fake, "t", number)
    assert "is another one now" in str(failure_of(reader, T0))
    reader.begin(T0, Position(0), fake.topic_ids["t"], None)
    (found,) = poll(reader)
    assert reader.consumed(found).offset == 120


@pytest.mark.parametrize("newest", [11, 12], ids=["no epochs", "no ids"])
def test_brokers_that_do_not_look_at_epochs_and_ids_are_not_read_from(fake, reader, newest):
    fake.api_versions[1] = (4, newest)
    reader.begin(T0, Position(90, 0), fake.topic_ids["t"], None)
    with pytest.raises(UnsupportedVersionError, match=f"Fetch in versions 4-{newest}, .* needs 13"):
        poll(reader)


def test_each_fetch_says_the_epoch_before_its_position_and_the_id_of_its_topic(fake, reader):
    log = fake.partition("t")
    reader.begin(T0, Position(30, 0), fake.topic_ids["t"], None)
    assert consumed(reader) == Position(90, 0)
    # After an answer without records, after an error, and on a new connection.
    for fault in (None, ErrorCode.NOT_LEADER_OR_FOLLOWER, Fault.DROP):
        fail_once(fake, fault)
        wait_for_fetches(fake, reader, 2)
    fake.move_leader("t", 0, 2)
    append(fake, "t", 1)
    assert consumed(reader) == Position(93, 1)
    fake.move_leader("t", 0, 3)
    marker = TransactionMarker(commits=True, coordinator_epoch=0)
    log.append(bytes(encode_marker(7, 0, marker, timestamp_ms=0)), idempotent_checks=False)
    fake.wake()
    assert consumed(reader) == Position(94, 2)
    reader.pause(T0, paused=True)
    reader.pause(T0, paused=False)
    append(fake, "t", 1)
    assert consumed(reader) == Position(97, 2)
    places = [(30, 0), (90, 0), (93, 1), (94, 2), (97, 2)]
    until(reader, lambda: len(set(fetches_of_t(fake))) == len(places))
    assert list(dict.fromkeys(fetches_of_t(fake))) == places
    assert sum(each.api == "Fetch" for each in fake.asked) == len(fetches_of_t(fake))


def test_an_offset_that_the_log_does_not_have_fails_that_partition_alone(fake, reader):
    reader.begin(T0, Position(1_000), fake.topic_ids["t"], None)
    reader.begin(V0, Position(0), fake.topic_ids["v"], None)
    failure_of(reader, T0)
    append(fake, "v", 1)
    (found,) = poll(reader)
    assert found.tp == V0
