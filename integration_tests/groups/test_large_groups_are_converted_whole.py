"""A group of more members than are converted in one turn, whose coordinator is killed while it is
converted: the next one finds it wholly of one kind, with every member in its place.
"""

import asyncio
import contextlib

from benchmarks.beside_kafka.rows import OURS
from benchmarks.groups.brokers import TOPIC, Coordinator
from benchmarks.groups.classic_assignments import EAGER
from benchmarks.groups.connections import MemberConnection
from benchmarks.groups.consumer_protocol_member import (
    NOT_YET,
    RETRY_S,
    VERSION,
    ConsumerProtocolMember,
)
from benchmarks.groups.crowd import Crowd
from benchmarks.groups.fetches import Ownership, Pauses
from benchmarks.groups.members import Watched
from integration_tests.groups.test_consumer_groups import coordinator_of, restart
from integration_tests.support.cluster_support import HEALED_S, create_topic, running_cluster
from storage_engine.client.admin.group_descriptions import CLASSIC_TYPE, CONSUMER_TYPE, describe
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.migration import AT_ONCE
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    API,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.local_cluster import LocalCluster

GROUP = "large"
MEMBERS = 4 * AT_ONCE
PARTITIONS = 10
KILLED_AFTER_S = (0.0, 0.05, None)
"""None: once the answer is there."""

Request = ConsumerGroupHeartbeatRequest
Answer = ConsumerGroupHeartbeatResponse


def coordinator_at(cluster: LocalCluster) -> Coordinator:
    address = cluster.bootstrap_servers.split(",")[coordinator_of(cluster, GROUP) - 1]
    return Coordinator(OURS, address, [])


async def fill(address: tuple[str, int]) -> None:
    """Members join, share the topic, and are gone without a word: their sessions go on."""
    ownership, pauses = Ownership(PARTITIONS), Pauses(PARTITIONS)
    watched = Watched(GROUP, TOPIC, PARTITIONS, ownership, pauses)
    async with Crowd(address, watched, EAGER, fetches=False) as crowd:
        await crowd.start_many(MEMBERS)
        await crowd.wait_until(
            lambda: ownership.is_shared_by(PARTITIONS), "a shared topic", HEALED_S
        )


def killed_amid(cluster: LocalCluster, request: Request, after_s: float | None) -> None:
    """Kill the coordinator so long after it was sent a request."""
    number, address = coordinator_of(cluster, GROUP), coordinator_at(cluster).address

    async def ask() -> None:
        connection = await MemberConnection.open(address)
        answer = asyncio.ensure_future(connection.begin(API, VERSION, request))
        await asyncio.wait([answer], timeout=after_s)
        cluster.kill_broker(number)
        with contextlib.suppress(CommandError):
            await answer
        connection.close()

    asyncio.run(ask())
    restart(cluster, number, GROUP)


def asked(cluster: LocalCluster, request: Request) -> Answer:
    """The answer to a heartbeat, which is sent again as clients do."""
    address = coordinator_at(cluster).address

    async def ask() -> Answer:
        connection = await MemberConnection.open(address)
        while True:
            answer = await connection.ask(API, VERSION, request)
            if ErrorCode.of(answer.error_code) not in NOT_YET:
                connection.close()
                return answer
            await asyncio.sleep(RETRY_S)

    return asyncio.run(ask())


def test_a_killed_coordinator_leaves_a_large_group_wholly_of_one_kind(tmp_path):
    settings = (("group.initial.rebalance.delay.ms", "500"),)
    with running_cluster(tmp_path, settings=settings) as cluster:
        create_topic(cluster, TOPIC, partitions=PARTITIONS)
        # Has the broker create the topic of groups, as the first consumer does.
        Coordinator.ready(OURS, cluster.bootstrap_servers.split(",")[0], [])
        asyncio.run(fill(coordinator_at(cluster).address))

        def group() -> tuple[str, frozenset[str]]:
            with Cluster(cluster.bootstrap_servers) as connected:
                found = describe(connected, GROUP)
            return found.group_type, frozenset(each.member_id for each in found.members)

        classic = group()
        assert (classic[0], len(classic[1])) == (CLASSIC_TYPE, MEMBERS)
        for after_s in KILLED_AFTER_S:
            member = ConsumerProtocolMember(GROUP, TOPIC)
            consumer = (CONSUMER_TYPE, classic[1] | {member.member_id})
            killed_amid(cluster, member.heartbeat(), after_s)
            # The member that joins comes in the next batch, before it is answered.
            converted = (CONSUMER_TYPE, classic[1])
            assert group() == consumer or (after_s is not None and group() in (classic, converted))
            member.answered(asked(cluster, member.heartbeat()))
            assert group() == consumer
            killed_amid(cluster, member.farewell(), after_s)
            if after_s is not None and group() == consumer:
                assert not asked(cluster, member.farewell()).error_code
            assert group() == classic
