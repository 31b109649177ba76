"""`headrace reassign`, R-TOOL3, R-TOOL4: proposals."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.placement import BrokerPlace, ReplicaCounts
from storage_engine.tools.cli import main
from storage_engine.tools.commands.reassign import propose

TP = TopicPartition("t", 0)


def test_a_file_that_is_not_there_is_told_in_one_line(tmp_path, capsys):
    plan = str(tmp_path / "none.json")
    arguments = ["--bootstrap-server", "127.0.0.1:1", "--reassignment-json-file", plan]
    assert main(["reassign", "verify", *arguments]) == 1
    assert capsys.readouterr().err == f"headrace: {plan}: No such file or directory\n"


@given(st.integers(1, 12), st.integers(1, 4), st.sets(st.integers(0, 50), min_size=4, max_size=9))
def test_a_proposal_spreads_all_partitions_over_the_brokers(partitions, factor, brokers):
    current = {TopicPartition("t", p): tuple(range(100, 100 + factor)) for p in range(partitions)}
    proposed = propose(current, {BrokerId(b): BrokerPlace() for b in brokers})
    assert proposed.keys() == current.keys()
    preferred = [replicas[0] for replicas in proposed.values()]
    for replicas in proposed.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= brokers
    counts = [preferred.count(b) for b in brokers]
    assert max(counts) - min(counts) <= 1


def test_too_few_brokers_for_a_proposal_are_told():
    with pytest.raises(KafkaError, match="replication factor"):
        propose({TP: (1, 2, 3)}, {BrokerId(4): BrokerPlace()})


def test_a_proposal_uses_machines_and_leaves_cordoned_brokers_out():
    current = {TopicPartition(t, p): (1, 2, 3) for t in "ab" for p in range(12)}
    places = {
        BrokerId(b): BrokerPlace(None, f"h{(b - 1) // 2}", is_cordoned=b == 6) for b in range(1, 9)
    }
    proposed = propose(current, places)
    for replicas in proposed.values():
        assert 6 not in replicas
        assert len({places[BrokerId(b)].machine for b in replicas}) == 3
    counts = Counter(b for replicas in proposed.values() for b in replicas)
    assert max(counts.values()) <= 1.1 * 72 / 7 + 1


def test_a_proposal_counts_the_topics_that_stay():
    counts = ReplicaCounts()
    for _ in range(30):
        counts.add([BrokerId(1), BrokerId(3)])
    places = {BrokerId(b): BrokerPlace(None, f"h{(b - 1) // 2}") for b in range(1, 5)}
    proposed = propose({TopicPartition("t", p): (1, 3) for p in range(20)}, places, counts)
    assert all(sorted(replicas) == [2, 4] for replicas in proposed.values())
