"""Topics become ready with their last partition, and looking costs no more than there is news."""

from types import SimpleNamespace

from storage_engine.core.control.controller import AwaitedTopics
from storage_engine.core.control.controller_events import TopicsReady

PARTITIONS = 500


class CountedPartition:
    """Counts how often its state is looked at."""

    looks = 0

    def __init__(self):
        self.known = None

    @property
    def state(self):
        CountedPartition.looks += 1
        return self.known


def cluster_of(**topics):
    return SimpleNamespace(topics=topics)


def topic_of(*partitions):
    return SimpleNamespace(partitions=dict(enumerate(partitions)), deleting=False)


def test_a_large_topic_is_looked_at_once_not_once_for_each_part_that_is_written():
    partitions = [CountedPartition() for _ in range(PARTITIONS)]
    awaited = AwaitedTopics(cluster_of(t=topic_of(*partitions)))
    awaited.add(["t"])
    CountedPartition.looks = 0
    ready = []
    for partition in partitions:
        partition.known = "some state"
        awaited.touch(["t"])
        ready.append(awaited.take_ready())
    assert ready == [[]] * (PARTITIONS - 1) + [[TopicsReady(topics=("t",))]]
    assert CountedPartition.looks < 3 * PARTITIONS


def test_topics_without_news_are_not_looked_at():
    written, others = CountedPartition(), [CountedPartition() for _ in range(PARTITIONS)]
    topics = {f"other-{n}": topic_of(partition) for n, partition in enumerate(others)}
    awaited = AwaitedTopics(cluster_of(**topics, t=topic_of(written)))
    awaited.add(["t", *topics])
    assert awaited.take_ready() == []
    CountedPartition.looks = 0
    written.known = "some state"
    awaited.touch(["t"])
    assert awaited.take_ready() == [TopicsReady(topics=("t",))]
    assert CountedPartition.looks == 1


def test_a_topic_that_grows_is_ready_when_its_new_partitions_are():
    first, second = CountedPartition(), CountedPartition()
    first.known = "some state"
    cluster = cluster_of(t=topic_of(first))
    awaited = AwaitedTopics(cluster)
    awaited.add(["t"])
    assert awaited.take_ready() == [TopicsReady(topics=("t",))]
    cluster.topics["t"] = topic_of(first, second)
    awaited.add(["t"])
    assert awaited.take_ready() == []
    second.known = "some state"
    awaited.touch(["t"])
    assert awaited.take_ready() == [TopicsReady(topics=("t",))]


def test_a_topic_that_is_gone_is_never_ready():
    partition = CountedPartition()
    cluster = cluster_of(t=topic_of(partition))
    awaited = AwaitedTopics(cluster)
    awaited.add(["t"])
    assert awaited.take_ready() == []
    del cluster.topics["t"]
    partition.known = "some state"
    awaited.touch(["t"])
    assert awaited.take_ready() == []
