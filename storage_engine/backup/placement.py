"""Which brokers have which partitions in the restored cluster. Pure."""

from collections.abc import Mapping, Sequence

from storage_engine.core.ids import BrokerId
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

Assignments = dict[str, dict[int, tuple[BrokerId, ...]]]
"""Topic -> partition -> replicas, the preferred leader first."""


def placed(topics: Mapping[str, TopicZNode], brokers: Sequence[BrokerId]) -> Assignments:
    """Return the replicas as the backup has them, if these brokers have the ids of all of them;
    else all are given out in turn, so many of each partition as it had, or as there are brokers.
    """
    wanted = {name: topics[name].assignment for name in sorted(topics)}
    used = {
        broker
        for assignment in wanted.values()
        for replicas in assignment.values()
        for broker in replicas
    }
    if used <= set(brokers):
        return {name: dict(assignment) for name, assignment in wanted.items()}
    ordered = sorted(brokers)
    found: Assignments = {}
    start = 0
    for name, assignment in wanted.items():
        found[name] = {}
        for number in sorted(assignment):
            count = min(len(assignment[number]), len(ordered))
            places = [(start + each) % len(ordered) for each in range(count)]
            found[name][number] = tuple(ordered[place] for place in places)
            start += 1
    return found
