"""`headrace verify-replicas`: what it reports of lag."""

from typing import Any

from storage_engine.client.fetching.replica_reader import ReplicaState
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.commands.verify_replicas import PartitionReport, ReplicaReport, describe


def test_lag_is_what_a_high_watermark_is_behind_the_leaders():
    replicas = [
        ReplicaReport(replica=1, is_leader=True, in_sync=True, state=ReplicaState(0, 100)),
        ReplicaReport(replica=2, is_leader=False, in_sync=False, state=ReplicaState(0, 60)),
        ReplicaReport(replica=3, is_leader=False, in_sync=False),
    ]
    report = PartitionReport(tp=TopicPartition("t", 0), replicas=replicas)
    document: Any = describe([report])
    assert [each["lag"] for each in document["partitions"][0]["replicas"]] == [0, 40, None]
