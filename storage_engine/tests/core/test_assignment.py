"""Where replicas go. Source: R-REP1, R-REP13."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.assignment import (
    NewPartitions,
    assign_replicas,
    assignment_steps,
    lacks_machines,
)
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId
from storage_engine.core.placement import BrokerPlace, ReplicaCounts


def assign(brokers, partitions, factor, *, racks=None, load=None, first=0, start_broker=None):
    places = {broker: BrokerPlace((racks or {}).get(broker)) for broker in brokers}
    new = NewPartitions(partitions, factor, first, start_broker)
    return assign_replicas(places, new, ReplicaCounts(preferred=Counter(load)))


def test_the_first_round_from_the_first_broker_is_the_documented_formula():
    brokers, n = (0, 1, 2, 3), 4
    assigned = assign(brokers, n, 3)
    assert assigned == {i: tuple((i + j) % n for j in range(3)) for i in range(n)}


@pytest.mark.parametrize("start", range(5))
def test_later_rounds_shift_the_followers_as_the_requirement_says(start):
    n, factor = 5, 3
    load = {broker: 0 if broker == start else 1 for broker in range(n)}
    assigned = assign(range(n), 4 * n, factor, load=load)
    for i, replicas in assigned.items():
        expected = [(start + i) % n]
        expected += [(start + i + 1 + (i // n + j - 1) % (n - 1)) % n for j in range(1, factor)]
        assert replicas == tuple(expected)


def test_the_broker_preferred_for_the_fewest_partitions_comes_first():
    assert assign((1, 2, 3), 1, 1, load={1: 4, 2: 1, 3: 2}) == {0: (2,)}


def test_topics_of_one_partition_spread_over_the_brokers():
    load: Counter[int] = Counter()
    for _ in range(9):
        load[assign((1, 2, 3), 1, 2, load=load)[0][0]] += 1
    assert load == {1: 3, 2: 3, 3: 3}


def test_the_load_of_a_dead_broker_spreads_over_all_survivors():
    n = 5
    assigned = assign(range(n), n * (n - 1), 3)
    for dead in range(n):
        successors = Counter(r[1] for r in assigned.values() if r[0] == dead)
        assert successors == {b: 1 for b in range(n) if b != dead}


def test_preferred_replicas_and_all_replicas_are_even():
    assigned = assign((1, 2, 3, 4), 24, 3)
    assert set(Counter(r[0] for r in assigned.values()).values()) == {6}
    assert set(Counter(b for r in assigned.values() for b in r).values()) == {18}


def test_added_partitions_go_on_with_the_sequence():
    whole = assign((1, 2, 3, 4), 10, 2, load={1: 9, 2: 9, 3: 1, 4: 9})
    added = assign((1, 2, 3, 4), 6, 2, first=4, start_broker=3)
    assert added == {p: whole[p] for p in range(4, 10)}


def test_one_broker_takes_all():
    assert assign((7,), 3, 1) == {0: (7,), 1: (7,), 2: (7,)}


def test_replicas_lie_on_different_racks_while_there_are_enough():
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    for replicas in assign(racks, 24, 3, racks=racks).values():
        assert len({racks[broker] for broker in replicas}) == 3


def test_more_replicas_than_racks_are_spread_as_far_as_it_goes():
    racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    for replicas in assign(racks, 12, 3, racks=racks).values():
        assert {racks[broker] for broker in replicas} == {"a", "b"}


def test_more_replicas_than_brokers_are_refused():
    with pytest.raises(KafkaError) as raised:
        assign((1, 2), 1, 3)
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_no_partitions_are_refused():
    with pytest.raises(KafkaError) as raised:
        assign((1, 2), 0, 1)
    assert raised.value.code is ErrorCode.INVALID_PARTITIONS


@given(
    st.dictionaries(st.integers(0, 50), st.sampled_from((None, "a", "b", "c")), min_size=1),
    st.integers(1, 40),
    st.data(),
)
def test_every_partition_has_its_replicas_on_different_live_brokers(racks, partitions, data):
    factor = data.draw(st.integers(1, len(racks)))
    assigned = assign(racks, partitions, factor, racks=racks)
    assert sorted(assigned) == list(range(partitions))
    for replicas in assigned.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(racks)
    leaders = Counter(replicas[0] for replicas in assigned.values())
    assert max(leaders.values()) - min(leaders[b] for b in racks) <= 1


def on_machines(*sizes, zones=None, first_broker=1):
    """Machines with so many brokers each; broker -> place."""
    places, broker = {}, first_broker
    for number, size in enumerate(sizes):
        for _ in range(size):
            zone = zones[number] if zones else None
            places[BrokerId(broker)] = BrokerPlace(zone, f"h{number}")
            broker += 1
    return places


def counted(assignments) -> ReplicaCounts:
    counts = ReplicaCounts()
    for assignment in assignments:
        for replicas in assignment.values():
            counts.add(replicas)
    return counts


def machines_of(places, replicas):
    return [places[broker].machine or broker for broker in replicas]


def levels(places, partitions, factor, counts):
    """The fewest replicas that the fullest broker can have: each machine takes each partition at
    most once, each zone as many replicas as the rule gives it. A lower bound, by halving."""
    by_machine: dict[tuple, list] = {}
    for broker, place in places.items():
        by_machine.setdefault((place.zone, place.machine or broker), []).append(broker)
    total = partitions * factor

    def room(level):
        zones: dict[str | None, list[int]] = {}
        for (zone, _), brokers in by_machine.items():
            free = sum(max(0, level - counts.replicas[b]) for b in brokers)
            zones.setdefault(zone, []).append(min(partitions, free))
        most = most_of_a_zone(by_machine, factor)
        return sum(min(sum(each), partitions * most[zone]) for zone, each in zones.items())

    low, high = 0, total + max(counts.replicas.values(), default=0)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if room(middle) >= total else (middle + 1, high)
    return low


def most_of_a_zone(machines, factor):
    """The replicas of one partition that a zone may get at most when they are as even over zones as
    the machines allow."""
    sizes = Counter(zone for zone, _ in machines)
    level = max(k for k in range(factor + 1) if sum(min(k, n) for n in sizes.values()) <= factor)
    is_exact = sum(min(level, n) for n in sizes.values()) == factor
    return {zone: min(n, level if is_exact else level + 1) for zone, n in sizes.items()}


def fewest_led_by_the_first(assignment, counts):
    """The fewest partitions for which the busiest broker is preferred, whatever the choice among
    the replicas of each partition: a matching, by halving the bound."""

    def fits(bound):
        led: dict[BrokerId, set[int]] = {}

        def lead(partition, seen):
            for broker in assignment[partition]:
                if broker in seen:
                    continue
                seen.add(broker)
                mine = led.setdefault(broker, set())
                if len(mine) < bound - counts.preferred[broker]:
                    mine.add(partition)
                    return True
                for other in list(mine):
                    if lead(other, seen):
                        mine.discard(other)
                        mine.add(partition)
                        return True
            return False

        return all(lead(partition, set()) for partition in assignment)

    involved = {broker for replicas in assignment.values() for broker in replicas}
    low = 0
    high = len(assignment) + max(counts.preferred[b] for b in involved)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low


@pytest.mark.parametrize(
    ("sizes", "partitions", "factor", "replicas", "leaders"),
    [
        ((16, 16, 8), 3000, 3, {188, 187, 375}, 75),
        ((16, 16, 8), 3000, 2, {149, 150, 151}, 75),
        ((16, 16, 8), 3000, 1, {75}, 75),
        ((16, 16), 64, 2, {4}, 2),
        ((16, 16, 16), 3000, 3, {187, 188}, 62.5),
    ],
)
def test_uneven_machines_are_filled_as_evenly_as_separate_machines_allow(
    sizes, partitions, factor, replicas, leaders
):
    places = on_machines(*sizes)
    assigned = assign_replicas(places, NewPartitions(partitions, factor))
    for each in assigned.values():
        assert len(set(machines_of(places, each))) == factor
    counts = counted([assigned])
    assert set(counts.replicas.values()) <= replicas
    assert set(counts.preferred) == set(places)
    assert all(abs(count - leaders) <= 1 for count in counts.preferred.values())


def test_what_a_dead_broker_led_is_shared_out_among_many():
    places = on_machines(16, 16, 16)
    assigned = assign_replicas(places, NewPartitions(3000, 3))
    for dead in places:
        successors = Counter(r[1] for r in assigned.values() if r[0] == dead)
        assert len(successors) >= 20
        assert max(successors.values()) <= 6


MACHINES = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@given(MACHINES, st.integers(1, 60), st.integers(1, 4), st.booleans(), st.data())
def test_replicas_share_no_machine_and_are_even_in_zones_and_on_brokers(
    sizes, partitions, factor, has_zones, data
):
    zones = data.draw(st.lists(st.sampled_from("abc"), min_size=len(sizes), max_size=len(sizes)))
    places = on_machines(*sizes, zones=zones if has_zones else None)
    factor = min(factor, len(sizes))
    before = ReplicaCounts()
    for broker in places:
        before.preferred[broker] = data.draw(st.integers(0, 9))
        before.replicas[broker] = before.preferred[broker] + data.draw(st.integers(0, 9))
    new = NewPartitions(partitions, factor)
    assigned = assign_replicas(places, new, before)
    assert assigned == assign_replicas(places, new, before)
    machines = {(place.zone, place.machine) for place in places.values()}
    most = most_of_a_zone(machines, factor)
    for replicas in assigned.values():
        assert len(set(machines_of(places, replicas))) == len(replicas) == factor
        in_zones = Counter(places[broker].zone for broker in replicas)
        assert all(in_zones[zone] <= most[zone] for zone in in_zones)
    if len({place.zone for place in places.values()}) == 1 and max(sizes) == 1:
        return  # The documented sequence, which looks at preferred leaders alone.
    after = before.copy()
    for replicas in assigned.values():
        after.add(replicas)
    got_some = {broker for replicas in assigned.values() for broker in replicas}
    fullest = max(after.replicas[broker] for broker in got_some)
    assert fullest <= 1.1 * levels(places, partitions, factor, before) + 1
    busiest = max(after.preferred[b] for b in {r[0] for r in assigned.values()})
    assert busiest <= 1.1 * fewest_led_by_the_first(assigned, before)


@given(MACHINES, st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3)), min_size=40))
def test_many_small_topics_are_as_even_as_one(sizes, topics):
    places = on_machines(*sizes, 1, 1)
    counts = ReplicaCounts()
    for partitions, factor in topics:
        assigned = assign_replicas(places, NewPartitions(partitions, factor), counts)
        for replicas in assigned.values():
            assert len(set(machines_of(places, replicas))) == factor
            counts.add(replicas)
    total = sum(partitions * factor for partitions, factor in topics)
    least = min(counts.replicas[broker] for broker in places)
    assert least <= total / len(places)
    by_machine: dict[str | None, list[int]] = {}
    for broker, place in places.items():
        by_machine.setdefault(place.machine, []).append(counts.replicas[broker])
    assert all(max(each) - min(each) <= 1 for each in by_machine.values())
    leaders = sum(partitions for partitions, _ in topics)
    assert max(counts.preferred.values()) <= 1.1 * leaders / len(places) + 2


def test_a_machine_whose_brokers_have_least_gets_new_replicas_first():
    places = on_machines(2, 2, 2)
    counts = ReplicaCounts()
    for broker in (1, 2, 3, 4):
        counts.replicas[BrokerId(broker)] = 90
        counts.preferred[BrokerId(broker)] = 30
    assigned = assign_replicas(places, NewPartitions(40, 1), counts)
    assert Counter(r[0] for r in assigned.values()) == {5: 20, 6: 20}


def test_brokers_without_a_machine_are_machines_of_their_own():
    places = {**on_machines(3), BrokerId(8): BrokerPlace(), BrokerId(9): BrokerPlace()}
    for replicas in assign_replicas(places, NewPartitions(30, 3)).values():
        assert {8, 9} < set(replicas)


def test_brokers_each_on_its_machine_keep_the_documented_sequence():
    alone = on_machines(1, 1, 1, 1)
    assert assign_replicas(alone, NewPartitions(12, 3)) == assign((1, 2, 3, 4), 12, 3)


def test_more_replicas_than_machines_are_refused_with_the_remedy():
    with pytest.raises(KafkaError) as raised:
        assign_replicas(on_machines(3, 3), NewPartitions(1, 3))
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert str(raised.value) == (
        "replication factor 3 is not possible with 6 brokers on 2 machines: ask for 1 to 2, or add "
        "machines: replicas of a partition never share a broker.host.name"
    )


@pytest.mark.parametrize("zones", [None, "ab"])
def test_where_machines_may_be_shared_all_of_them_are_used(zones):
    places = on_machines(4, 2, zones=zones)
    assert lacks_machines(places, 3)
    assigned = assign_replicas(places, NewPartitions(24, 3, may_share_machines=True))
    for replicas in assigned.values():
        assert len(set(replicas)) == 3
        assert sorted(Counter(machines_of(places, replicas)).values()) == [1, 2]
    counts = counted([assigned])
    assert max(counts.replicas.values()) <= 13
    with pytest.raises(KafkaError, match="with 6 brokers: ask for 1 to 6"):
        assign_replicas(places, NewPartitions(1, 7, may_share_machines=True))


def test_cordoned_brokers_get_no_replicas():
    places = on_machines(2, 2, 2)
    for broker in (1, 4, 5):
        places[BrokerId(broker)] = places[BrokerId(broker)]._replace(is_cordoned=True)
    assigned = assign_replicas(places, NewPartitions(9, 3))
    assert all(set(replicas) == {2, 3, 6} for replicas in assigned.values())
    places[BrokerId(6)] = places[BrokerId(6)]._replace(is_cordoned=True)
    with pytest.raises(KafkaError) as raised:
        assign_replicas(places, NewPartitions(9, 3))
    assert str(raised.value) == (
        "replication factor 3 is not possible with 2 brokers that take new replicas (4 more are "
        "cordoned): ask for 1 to 2, or uncordon some (cordoned.log.dirs)"
    )


def test_many_partitions_are_placed_in_steps():
    """A controller has other work meanwhile."""
    places = on_machines(16, 16, 16)
    steps = assignment_steps(places, NewPartitions(10_000, 3))
    assert sum(1 for _ in steps) > 10_000 // 64
    plain = assignment_steps({b: BrokerPlace() for b in places}, NewPartitions(10_000, 3))
    assert sum(1 for _ in plain) > 10_000 // 128
