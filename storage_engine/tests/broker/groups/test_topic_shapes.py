"""The snapshots of topics that coordinators are told."""

from uuid import UUID

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.groups.topic_shapes import TopicShapes
from storage_engine.core.coordinator_log import PIECE
from storage_engine.core.groups.consumer.events import TopicShape
from storage_engine.core.ids import BrokerId, ControllerEpoch, LeaderEpoch
from storage_engine.protocol.apis.update_metadata import (
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)


def partition(topic: str, number: int, topic_id: int, leader: int = 1) -> UpdateMetadataPartition:
    return UpdateMetadataPartition(
        topic=topic,
        partition=number,
        topic_id=UUID(int=topic_id),
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(0),
        replicas=(BrokerId(1),),
        isr=(BrokerId(1),),
    )


class Shown:
    """A broker's view of the cluster, and what is told of its topics."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.metadata = MetadataCache()
        self.shapes = TopicShapes(self.metadata, self.loop)
        self.told: list[tuple[dict[str, TopicShape], set[str]]] = []
        self.shapes.on_changed = lambda shapes, names: self.told.append((dict(shapes), set(names)))

    def update(self, *partitions: UpdateMetadataPartition, run: bool = True, **fields) -> None:
        request = UpdateMetadataRequest(
            controller_id=BrokerId(1),
            controller_epoch=ControllerEpoch(1),
            brokers=[],
            partitions=list(partitions),
            **fields,
        )
        self.metadata.update(request)
        if run:
            self.loop.run_for(1)


def shape(topic_id: int, partitions: int) -> TopicShape:
    return TopicShape(UUID(int=topic_id), partitions)


def test_the_first_order_tells_the_whole_cluster():
    shown = Shown()
    shown.update(partition("a", 0, 1), partition("a", 1, 1), partition("b", 0, 2), full=True)
    assert shown.told == [({"a": shape(1, 2), "b": shape(2, 1)}, {"a", "b"})]


def test_an_empty_cluster_is_told_too():
    assert Shown().shapes.known is None
    shown = Shown()
    shown.update(full=True)
    assert shown.shapes.known == {}
    assert shown.told == [({}, set())]


def test_a_topic_that_grows_is_told_by_its_name():
    shown = Shown()
    shown.update(partition("a", 0, 1), partition("b", 0, 2), full=True)
    shown.update(partition("a", 1, 1))
    assert shown.told[-1] == ({"a": shape(1, 2), "b": shape(2, 1)}, {"a"})


def test_another_leader_is_not_told():
    shown = Shown()
    shown.update(partition("a", 0, 1), full=True)
    shown.update(partition("a", 0, 1, leader=2))
    assert len(shown.told) == 1


def test_a_topic_that_is_gone_is_told():
    shown = Shown()
    shown.update(partition("a", 0, 1), full=True)
    shown.update(removed_topics=["a"])
    assert shown.told[-1] == ({}, {"a"})


def test_a_topic_that_a_full_order_leaves_out_is_gone():
    shown = Shown()
    shown.update(partition("a", 0, 1), partition("b", 0, 2), full=True)
    shown.update(partition("b", 0, 2), full=True)
    assert shown.told[-1] == ({"b": shape(2, 1)}, {"a"})


def test_a_topic_that_was_made_anew_has_another_id():
    shown = Shown()
    shown.update(partition("a", 0, 1), full=True)
    shown.update(partition("a", 0, 9))
    assert shown.told[-1] == ({"a": shape(9, 1)}, {"a"})


def test_a_topic_counts_as_far_as_its_partitions_are_known_without_a_gap():
    shown = Shown()
    shown.update(partition("a", 0, 1), partition("a", 2, 1), full=True)
    assert shown.shapes.known == {"a": shape(1, 1)}
    shown.update(partition("a", 1, 1))
    assert shown.shapes.known == {"a": shape(1, 3)}


def test_a_topic_without_its_first_partition_or_an_id_of_its_own_is_not_there_yet():
    shown = Shown()
    shown.update(partition("a", 1, 1), partition("b", 0, 0), full=True)
    assert shown.shapes.known == {}


def test_changes_of_one_turn_are_told_at_once():
    shown = Shown()
    shown.update(full=True)
    shown.update(partition("a", 0, 1), run=False)
    shown.update(partition("b", 0, 2))
    assert [names for _, names in shown.told[1:]] == [{"a", "b"}]


def test_what_changes_while_many_topics_are_looked_at_is_told_with_them():
    shown = Shown()
    many = [partition(f"t{number}", 0, number + 1) for number in range(3 * PIECE)]
    shown.update(*many, full=True, run=False)
    assert shown.told == []
    shown.loop._run_one()
    shown.update(partition("t0", 1, 1))
    ((shapes, names),) = shown.told
    assert len(names) == len(many)
    assert shapes["t0"] == shape(1, 2)


def test_the_names_are_those_of_the_newest_snapshot():
    shown = Shown()
    assert shown.shapes.names() == frozenset()
    for count in (1, 2):
        shown.update(
            *(partition(f"t{number}", 0, number + 1) for number in range(count)), full=True
        )
        assert shown.shapes.names() == {f"t{number}" for number in range(count)}


def test_a_snapshot_stays_as_it_was():
    shown = Shown()
    shown.update(partition("a", 0, 1), full=True)
    before = shown.shapes.known
    shown.update(partition("a", 1, 1))
    assert before == {"a": shape(1, 1)}
