"""`headrace reassign`, R-TOOL3, R-TOOL4: proposals, and what `verify` says of a partition."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.client.admin.reassignment import Ongoing
from storage_engine.client.metadata import ClusterMetadata, TopicMetadata
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.placement import BrokerPlace
from storage_engine.protocol.apis.metadata import MetadataBroker, MetadataPartition
from storage_engine.tools.cli import main
from storage_engine.tools.commands.reassign import progress, propose
from storage_engine.tools.reassign_log_dirs import DONE, FAILED, MOVING

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


def view(replicas, isr, live=(1, 2, 3, 4, 5, 6)) -> ClusterMetadata:
    partition = MetadataPartition(partition=0, leader=isr[0], replicas=replicas, isr=isr)
    return ClusterMetadata(
        brokers={b: MetadataBroker(broker_id=b, host="h", port=1) for b in live},
        topics={
            "t": TopicMetadata(
                topic="t",
                topic_id=UUID(int=1),
                is_internal=False,
                partitions={0: partition},
            )
        },
    )


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "moving", "expected"),
    [
        ((4, 5), (4, 5), (4, 5), False, (DONE, "")),
        ((5, 4), (4, 5), (4, 5), False, (FAILED, "replicas are 5, 4")),
        ((1, 2, 4, 5), (1, 2), (1, 2, 4, 5), True, (MOVING, "not in sync yet: 4, 5")),
        ((1, 2, 4, 5), (1, 2, 4), (1, 2, 4), True, (MOVING, "waits for dead brokers 5")),
        ((1, 2, 4, 5), (1, 4, 5), (1, 4, 5), True, (MOVING, "old replicas are being deleted")),
    ],
)
def test_verify_says_what_is_missing(replicas, isr, live, moving, expected):
    ongoing = Ongoing(replicas, (4, 5), (1, 2)) if moving else None
    assert progress(TP, (4, 5), view(replicas, isr, live), ongoing) == expected


def test_verify_knows_a_partition_that_is_not_there():
    assert progress(TopicPartition("u", 0), (1,), view((1,), (1,)), None)[0] == FAILED
