"""Brokers need no more than ClusterAction for all that they ask of each other."""

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.protocol.apis.fetch import (
    ANY_REPLICA_ID,
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchRequest,
)
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.messages.create_acls import API as CREATE
from storage_engine.protocol.messages.create_acls import CreateAclsRequest
from storage_engine.tests.broker.guards.guarded_cluster import (
    BROKER,
    come_as,
    guarded_cluster,
)

TP = TopicPartition("t", 0)


def _rule(kind: ResourceType, name: str, principal: str, operation: int):
    return CreateAclsRequest.AclCreation(
        resource_type=int(kind),
        resource_name=name,
        resource_pattern_type=3,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=3,
    )


def test_replication_failover_and_repair_work_with_cluster_action_alone(tmp_path) -> None:
    cluster = guarded_cluster(
        tmp_path,
        3,
        super_users="User:admin",
        allow_everyone_if_no_acl_found="true",
        default_replication_factor="3",
    )
    # From here on brokers have this right only: there are rules about everything.
    rules = [
        _rule(ResourceType.CLUSTER, "kafka-cluster", str(BROKER), 9),
        *(_rule(kind, "*", "User:nobody", 8) for kind in ResourceType if kind != 4),
    ]
    answer = cluster.answer(cluster.ask(1, CREATE, 2, CreateAclsRequest(creations=rules)))
    assert [row.error_message for row in answer.results] == [None] * len(rules)
    cluster.loop.run_for(1000)

    assert not cluster.create_topic("t", min_insync_replicas="2").error_code
    assert cluster.produced(TP, b"first") == 0
    cluster.wait_in_sync(TP, 1, 2, 3)
    leader = cluster.state(TP).leader
    cluster[leader].kill(session_ends_at_once=True)
    assert cluster.produced(TP, b"second") == 1
    cluster[leader].start()
    cluster.wait_in_sync(TP, 1, 2, 3)

    come_as(cluster, BROKER)
    wanted = [FetchPartition("t", 0, 0, 1 << 20)]
    repair = FetchRequest(0, 0, 1 << 20, wanted, ANY_REPLICA_ID)
    (row,) = cluster.answer(cluster.ask(leader, FETCH, 11, repair)).partitions
    assert not row.error_code
    assert row.records
    consumer = repair._replace(replica_id=CONSUMER_REPLICA_ID)
    (row,) = cluster.answer(cluster.ask(leader, FETCH, 11, consumer)).partitions
    assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.close()
