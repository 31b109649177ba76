"""Which brokers take new replicas, and which replicas share a machine. Source: R-REP13."""

import pytest

from storage_engine.core.ids import BrokerId
from storage_engine.core.placement import (
    BrokerPlace,
    ReplicaCounts,
    cordoned_among,
    is_cordoned,
    sharing_a_machine,
    takers,
)

PLACES = {
    BrokerId(1): BrokerPlace("east", "a"),
    BrokerId(2): BrokerPlace("east", "a", is_cordoned=True),
    BrokerId(3): BrokerPlace("west", "b"),
    BrokerId(4): BrokerPlace(),
}


def replicas(*brokers: int) -> list[BrokerId]:
    return [BrokerId(broker) for broker in brokers]


def test_cordoned_brokers_take_no_replicas():
    assert sorted(takers(PLACES)) == [1, 3, 4]
    assert cordoned_among([1, 2, 9], PLACES) == [2]


def test_replicas_that_share_a_machine_are_named():
    assert sharing_a_machine(replicas(1, 3, 2), PLACES) == [1, 2]
    assert sharing_a_machine(replicas(1, 3, 4), PLACES) == []
    assert sharing_a_machine(replicas(4, 8, 9), PLACES) == [], "unknown ones are alone"


@pytest.mark.parametrize(
    ("cordoned", "expected"),
    [((), False), (("/a",), False), (("/b", "/a"), True), (("*",), True), (("/c",), False)],
)
def test_a_broker_is_cordoned_when_all_of_its_log_dirs_are(cordoned, expected):
    assert is_cordoned(cordoned, ("/a", "/b")) is expected


def test_a_broker_that_tells_no_log_dirs_is_not_cordoned():
    assert not is_cordoned((), ())


def test_counts_follow_what_comes_and_goes_and_copies_stand_alone():
    counts = ReplicaCounts()
    counts.add(replicas(1, 2, 3))
    counts.add(replicas(2, 1))
    copy = counts.copy()
    counts.remove(replicas(1, 2, 3))
    counts.remove([])
    assert (+counts.replicas, +counts.preferred) == ({1: 1, 2: 1}, {2: 1})
    assert (copy.replicas, copy.preferred) == ({1: 2, 2: 2, 3: 1}, {1: 1, 2: 1})
