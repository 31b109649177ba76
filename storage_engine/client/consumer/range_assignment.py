"""The range assignment: it decides which member of a group reads which partitions, topic by topic.

Each partition of a topic goes to one of the members that are subscribed to it, and every member
computes the same result. Source: Kafka's RangeAssignor.
"""

from collections.abc import Collection, Mapping

from storage_engine.core.ids import TopicPartition

RANGE = "range"
"""The name of this strategy in JoinGroup."""


def assign_ranges(
    subscriptions: Mapping[str, Collection[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member of `subscriptions`, which maps members to their topics. Members
    in the order of their names get runs of partitions whose lengths differ by at most one, the
    longer ones first. A topic without partitions is left out.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        least, longer = divmod(partition_counts.get(topic, 0), len(members))
        start = 0
        for index, member in enumerate(members):
            end = start + least + (index < longer)
            assigned[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assigned
