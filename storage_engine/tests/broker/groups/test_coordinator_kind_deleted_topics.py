"""A topic is deleted while its groups' coordinator is away: the next coordinator finds out, and the
next topic of that name does not begin at the old offsets."""

from collections.abc import Callable

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.topic_lookup import GONE, FoundTopic
from storage_engine.broker.groups.coordinator_kind import RETRY_MS, DeletedTopics, TopicPorts
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId
from storage_engine.tests.broker.groups.test_consumer_groups import (
    PARTITIONS,
    TRIES,
    GroupClient,
    offsets_partition,
)
from storage_engine.tests.broker.support import cluster_fixture

CONTROLLER = BrokerId(1)


cluster = cluster_fixture(
    "a",
    offsets_topic_num_partitions=str(PARTITIONS),
    offsets_retention_check_interval_ms="1000",
    min_insync_replicas="2",
)


def fails_over(cluster) -> int:
    """The coordinator dies, and for a while ZooKeeper does not know that; who it was."""
    old = cluster.state(offsets_partition()).leader
    cluster[old].kill()
    return old


def wait_for(cluster, done: Callable[[], bool]) -> None:
    for _ in range(TRIES):
        if done():
            return
        cluster.loop.run_for(50)
    raise AssertionError("in vain")


def test_a_topic_deleted_while_its_groups_had_no_coordinator_begins_anew(cluster):
    client = GroupClient(cluster)
    assert client.commit(1000) is ErrorCode.NONE
    cluster.loop.run_for(3_000)
    old = fails_over(cluster)
    cluster.delete_topic("a")
    wait_for(
        cluster,
        lambda: (
            all("a" not in b.metadata for b in cluster.brokers if b.serving)
            and cluster.state(offsets_partition()).leader != old
        ),
    )
    wait_for(cluster, lambda: client.offset() == -1)
    cluster[old].start()
    wait_for(cluster, lambda: cluster.create_topic("a").error_code == 0)
    assert client.offset() == -1
    assert client.commit(7) is ErrorCode.NONE
    cluster.loop.run_for(5_000)
    assert client.offset() == 7


def test_a_topic_that_a_coordinator_heard_nothing_of_is_found_as_time_passes(cluster, monkeypatch):
    """Its broker was told of the deletion, and could write nothing just then."""
    client = GroupClient(cluster)
    assert client.commit(1000) is ErrorCode.NONE
    for broker in cluster.brokers:
        monkeypatch.setattr(broker.parts.coordinators.groups, "submit_to_all", lambda event: None)
    cluster.answer(cluster.delete_topic("a"))
    wait_for(cluster, lambda: client.offset() == -1)


class Lookup:
    """ZooKeeper, asked by hand."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Callable[[FoundTopic | None], None]]] = []

    def look_up(self, topic: str, on_found: Callable[[FoundTopic | None], None]) -> None:
        self.asked.append((topic, on_found))

    def answer(self, found: FoundTopic | None) -> None:
        self.asked.pop(0)[1](found)


class View(MetadataCache):
    """The topics that the controller has told of."""

    def __init__(self) -> None:
        super().__init__()
        self.controller_id = CONTROLLER
        self.there: set[str] = set()

    def __contains__(self, topic: str) -> bool:
        return topic in self.there


class Later:
    """A scheduler."""

    def __init__(self) -> None:
        self.due: list[tuple[int, Callable[[], None]]] = []

    def call_later(self, delay_ms: int, act: Callable[[], None]) -> None:
        self.due.append((delay_ms, act))


class Bench:
    def __init__(self) -> None:
        self.lookup, self.view, self.later = Lookup(), View(), Later()
        self.gone: list[frozenset[str]] = []
        ports = TopicPorts(metadata=self.view, lookup=self.lookup)
        self.deleted = DeletedTopics(ports, self.later, self.gone.append)

    def look_for(self, *topics: str) -> None:
        self.deleted.look_for(frozenset(topics))


def test_a_topic_is_asked_for_once_and_only_if_the_controller_knows_none():
    bench = Bench()
    bench.view.there = {"a"}
    bench.look_for("a", "b")
    bench.look_for("a", "b")
    assert [topic for topic, _ in bench.lookup.asked] == ["b"]
    bench.lookup.answer(GONE)
    assert bench.gone == [{"b"}]


def test_a_topic_that_is_made_anew_before_the_answer_keeps_what_is_committed_there():
    bench = Bench()
    bench.look_for("b")
    bench.view.there = {"b"}
    bench.lookup.answer(GONE)
    bench.look_for("c")
    bench.lookup.answer(FoundTopic(frozenset([0])))
    assert bench.gone == []


def test_a_request_for_a_deletion_counts_only_while_the_controller_knows_no_such_topic():
    bench = Bench()
    asked_to_go = FoundTopic(frozenset([0]), deletion_is_requested=True)
    bench.look_for("b", "c")
    bench.view.there = {"c"}
    bench.lookup.answer(asked_to_go)
    bench.lookup.answer(asked_to_go)
    assert bench.gone == [{"b"}]


def test_a_zookeeper_that_says_nothing_is_asked_again():
    bench = Bench()
    bench.look_for("b")
    bench.lookup.answer(None)
    ((delay_ms, ask_again),) = bench.later.due
    assert (delay_ms, bench.gone) == (RETRY_MS, [])
    ask_again()
    bench.lookup.answer(GONE)
    assert bench.gone == [{"b"}]


def test_a_coordinator_that_has_ended_forgets_nothing():
    bench = Bench()
    bench.look_for("b")
    bench.deleted.close()
    bench.lookup.answer(GONE)
    bench.look_for("c")
    assert (bench.gone, bench.lookup.asked) == ([], [])


def test_before_the_controller_has_told_anything_nothing_is_asked():
    bench = Bench()
    bench.view.controller_id = BrokerId(-1)
    bench.look_for("b")
    assert bench.lookup.asked == []
    bench.view.controller_id = CONTROLLER
    (act,) = bench.view._waiting
    act()
    assert [topic for topic, _ in bench.lookup.asked] == ["b"]
