"""How partitions are shared out among the members of a group."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.client.consumer.range_assignment import assign_ranges
from storage_engine.core.ids import TopicPartition

TOPICS = st.sets(st.text("abcé", min_size=1, max_size=4), max_size=4)


@given(
    st.dictionaries(st.text("mn", min_size=1, max_size=3), TOPICS, min_size=1, max_size=5),
    st.dictionaries(st.text("abcé", min_size=1, max_size=4), st.integers(0, 7)),
)
def test_each_partition_has_one_member_and_shares_are_even(subscriptions, counts):
    assigned = assign_ranges(subscriptions, counts)
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    every = [TopicPartition(t, n) for t in wanted for n in range(counts.get(t, 0))]
    assert sorted(tp for each in assigned.values() for tp in each) == sorted(every)
    for topic in wanted:
        members = sorted(m for m, topics in subscriptions.items() if topic in topics)
        shares = [[tp for tp in assigned[m] if tp.topic == topic] for m in members]
        assert all(len(more) - len(less) in (0, 1) for more, less in pairwise(shares))
        assert [tp for share in shares for tp in share] == sorted(
            tp for share in shares for tp in share
        )
