"""Static members come back with so much data that the log could not hold their group's record: they
are refused, and the coordinator goes on, for them and for the other groups of its partition."""

from typing import Any

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, TopicPartition
from storage_engine.protocol.messages import join_group, sync_group
from storage_engine.tests.broker.groups.test_consumer_groups import GROUP, GroupClient
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.core.groups.group_bench import subscription

OFFSETS = TopicPartition(GROUP_OFFSETS_TOPIC, 0)
MEMBERS = 3
DATA_BYTES = 7 << 20
GATHERED_MS = 60_000


cluster = cluster_fixture("a", offsets_topic_num_partitions="1")


def join_request(number: int, data: bytes = b"") -> Any:
    protocol = join_group.JoinGroupRequest.JoinGroupRequestProtocol
    return join_group.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=GATHERED_MS,
        rebalance_timeout_ms=GATHERED_MS,
        member_id="",
        group_instance_id=f"i{number}",
        protocol_type="consumer",
        protocols=[protocol(name="range", metadata=subscription("a") + data)],
    )


def sync_request(number: int, joined: Any) -> Any:
    return sync_group.SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=f"i{number}",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )


def test_members_that_come_back_too_large_end_no_coordinator(cluster):
    client = GroupClient(cluster)
    assert client.commit(1) is ErrorCode.NONE
    asked = [client.send(join_group.API, 9, join_request(each)) for each in range(MEMBERS)]
    cluster.loop.run_for(GATHERED_MS)
    joined = [cluster.answer(each) for each in asked]
    assert {each.generation_id for each in joined} == {1}
    synced = [
        client.send(sync_group.API, 5, sync_request(number, each))
        for number, each in enumerate(joined)
    ]
    assert [cluster.answer(each).error_code for each in synced] == [0] * MEMBERS

    leader = cluster[cluster.state(OFFSETS).leader]
    runners = dict(leader.parts.coordinators.groups._runners)
    codes = []
    for number in range(MEMBERS):
        request = join_request(number, bytes(DATA_BYTES))
        codes.append(cluster.answer(client.send(join_group.API, 9, request)).error_code)
        cluster.loop.run_for(100)
    refused = int(ErrorCode.INVALID_REQUEST)
    assert codes == [0] + [refused] * (MEMBERS - 1)
    assert leader.parts.coordinators.groups._runners == runners
    assert GroupClient(cluster, "another").commit(2) is ErrorCode.NONE
