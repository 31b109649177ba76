"""Where replicas go. Source: R-REP1."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.assignment import assign_replicas
from storage_engine.core.errors import ErrorCode, KafkaError


def assign(brokers, partitions, factor, *, racks=None, load=None, **more):
    where = {broker: (racks or {}).get(broker) for broker in brokers}
    return assign_replicas(
        where,
        partitions=partitions,
        replication_factor=factor,
        preferred_counts=load or {},
        **more,
    )


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
    added = assign((1, 2, 3, 4), 6, 2, first_partition=4, start_broker=3)
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
