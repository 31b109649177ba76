"""What is said of a partition that is moved, R-TOOL3, R-TOOL4."""

from uuid import UUID

import pytest

from storage_engine.client.admin.reassignment import Ongoing
from storage_engine.client.metadata import ClusterMetadata, TopicMetadata
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.metadata import MetadataBroker, MetadataPartition
from storage_engine.tools.placement.reassign_progress import DONE, FAILED, MOVING, progress

TP = TopicPartition("t", 0)


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
