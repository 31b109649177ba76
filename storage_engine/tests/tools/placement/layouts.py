"""Layouts of clusters for tests of plans."""

from collections import Counter

from hypothesis import strategies as st

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.placement.layout import KnownBroker, Layout, PlacedPartition


def layout(
    replicas, *, machines=None, racks=None, brokers=4, dead=(), cordoned=(), sizes=None, **more
):
    """`replicas`: partition 0, 1, … of topic `t`; `machines`: broker -> machine, each its own;
    `racks`: broker -> rack."""
    places = {
        broker: KnownBroker(
            machine=(machines or {}).get(broker, f"broker {broker}"),
            rack=(racks or {}).get(broker),
            is_alive=broker not in dead,
            is_cordoned=broker in cordoned,
        )
        for broker in range(1, brokers + 1)
    }
    partitions = {}
    for number, assigned in enumerate(replicas):
        alive = [broker for broker in assigned if broker not in dead]
        partitions[TopicPartition("t", number)] = PlacedPartition(
            replicas=tuple(assigned),
            leader=alive[0] if alive else -1,
            isr=frozenset(alive),
            size_bytes=(sizes or {}).get(number, 100),
            **more,
        )
    return Layout(brokers=places, partitions=partitions)


@st.composite
def clusters(draw, *, most_brokers=8):
    """Layouts in which no partition shares a machine, some brokers are cordoned, and some dead."""
    count = draw(st.integers(2, most_brokers))
    machines = {b: f"m{draw(st.integers(0, 4))}" for b in range(1, count + 1)}
    by_machine: dict[str, list[int]] = {}
    for broker, machine in machines.items():
        by_machine.setdefault(machine, []).append(broker)
    factor = draw(st.integers(1, min(3, len(by_machine))))
    replicas = []
    for _ in range(draw(st.integers(1, 20))):
        chosen = draw(st.permutations(sorted(by_machine)))[:factor]
        replicas.append([draw(st.sampled_from(by_machine[machine])) for machine in chosen])
    sizes = {n: draw(st.integers(0, 1000)) for n in range(len(replicas))}
    few = st.sets(st.integers(1, count), max_size=2)
    cordoned, dead = draw(few), draw(st.one_of(st.just(set()), few))
    return layout(
        replicas, machines=machines, brokers=count, cordoned=cordoned, dead=dead, sizes=sizes
    )


def machines_of(cluster, replicas) -> list[str]:
    return [cluster.brokers[broker].machine for broker in replicas]


def counts_of(cluster, plan):
    """How many replicas and leaders, and how many bytes each broker has after the plan."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    size: Counter[int] = Counter()
    for tp, partition in cluster.partitions.items():
        assigned = plan.get(tp, partition.replicas)
        leaders[assigned[0]] += 1
        for broker in assigned:
            replicas[broker] += 1
            size[broker] += partition.size_bytes
    return {"replicas": replicas, "leaders": leaders, "bytes": size}
