"""The topics that a coordinator knows, and whom a change of them concerns."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.groups.consumer.events import TopicShape
from storage_engine.core.groups.consumer.topics import Topics, seen
from storage_engine.tests.core.groups.consumer.consumer_bench import shapes, topic_id

shape = st.builds(TopicShape, st.uuids(), st.integers(1, 1_000))


@given(st.lists(shape), st.randoms())
def test_the_hash_does_not_depend_on_the_order(some, random):
    other = list(some)
    random.shuffle(other)
    assert seen(other) == seen(some)
    assert -(2**63) <= seen(some).hash < 2**63


@given(st.lists(shape, min_size=1))
def test_another_id_or_size_or_number_of_topics_has_another_hash(some):
    first, *others = some
    grown = first._replace(partitions=first.partitions + 1)
    made_anew = first._replace(topic_id=topic_id("another"))
    hashes = {seen(each).hash for each in (some, others, [grown, *others], [made_anew, *others])}
    assert len(hashes) == 4


def test_the_hash_is_the_same_in_every_release():
    assert seen([]).hash == 0
    assert seen(list(shapes(t=3, u=1).values())).hash == -4316154651874286336


def test_only_groups_that_subscribe_to_a_changed_topic_are_concerned():
    topics = Topics()
    for group_id, name in (("g", "t"), ("h", "u"), ("i", "gone"), ("i", "t")):
        topics.subscribe(group_id, name)
    assert {*topics.change(shapes(t=1, u=1, gone=1), {"t"})} == {"g", "h", "i"}, "it knew nothing"
    assert {*topics.change(shapes(t=2, u=1, gone=1), {"t", "u"})} == {"g", "i"}
    assert {*topics.change(shapes(t=2, u=1), {"gone", "other"})} == {"i"}
    topics.unsubscribe("g", "t")
    assert {*topics.change(shapes(t=3, u=1), {"t"})} == {"i"}


def test_topics_that_do_not_exist_have_no_shape():
    topics = Topics()
    assert topics.of(["t"]) == {}
    topics.change(shapes(t=1), {"t"})
    assert topics.of(["t", "u"]) == shapes(t=1)
