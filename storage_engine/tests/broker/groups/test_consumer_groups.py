"""Groups in a simulated cluster: requests on the wire, failovers, too few replicas, bad input."""

from typing import Any

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.protocol.messages import (
    add_offsets_to_txn,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.core.groups.group_bench import subscription

A = TopicPartition("a", 0)
GROUP = "g"
PARTITIONS = 3
TRIES = 400
RETRIED = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


cluster = cluster_fixture(
    "a",
    offsets_topic_num_partitions=str(PARTITIONS),
    transaction_state_log_num_partitions=str(PARTITIONS),
    offsets_retention_check_interval_ms="1000",
    group_initial_rebalance_delay_ms="500",
    min_insync_replicas="2",
)


class GroupClient:
    """Asks whoever coordinates a group, until it is answered for good."""

    def __init__(self, cluster: SimulatedCluster, group: str = GROUP) -> None:
        self.cluster = cluster
        self.group = group

    def answered(self, answers: list[Any]) -> Any | None:
        self.cluster.loop.run_until(lambda: bool(answers), limit_ms=200_000)
        return None if isinstance(answers[0], TransportError) else answers[0]

    def coordinator(self) -> int:
        request = find_coordinator.FindCoordinatorRequest(key=self.group, key_type=0)
        for _ in range(TRIES):
            for broker in self.cluster.brokers:
                if broker.serving:
                    asked = self.cluster.ask(broker.id, find_coordinator.API, 3, request)
                    answer = self.answered(asked)
                    if answer is not None and not answer.error_code:
                        return int(answer.node_id)
            self.cluster.loop.run_for(50)
        raise AssertionError("no coordinator")

    def send(self, spec: Any, version: int, request: Any) -> list[Any]:
        return self.cluster.ask(self.coordinator(), spec, version, request)

    def ask(self, spec: Any, version: int, request: Any, code: Any = None) -> Any:
        """`code` takes the error out of an answer."""
        code = code or (lambda answer: answer.error_code)
        for _ in range(TRIES):
            answer = self.answered(self.send(spec, version, request))
            if answer is not None and ErrorCode.of(code(answer)) not in RETRIED:
                return answer
            self.cluster.loop.run_for(50)
        raise AssertionError(f"{spec.name} was never answered for good")

    def commit_request(self, offset: int, *, metadata: str = "", topic: str = "a") -> Any:
        item = offset_commit.OffsetCommitRequest.OffsetCommitRequestTopic
        return offset_commit.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                item(
                    name=topic,
                    partitions=[
                        item.OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )

    def commit(self, offset: int, **what: Any) -> ErrorCode:
        request = self.commit_request(offset, **what)
        answer = self.ask(offset_commit.API, 8, request, _partition_code)
        return ErrorCode.of(_partition_code(answer))

    def offset(self, *, require_stable: bool = False) -> int | ErrorCode:
        group = offset_fetch.OffsetFetchRequest.OffsetFetchRequestGroup
        request = offset_fetch.OffsetFetchRequest(
            groups=[group(group_id=self.group, topics=None)], require_stable=require_stable
        )
        answer = self.ask(offset_fetch.API, 8, request, lambda a: a.groups[0].error_code)
        rows = [row for topic in answer.groups[0].topics for row in topic.partitions]
        if not rows:
            return -1
        return ErrorCode.of(rows[0].error_code) if rows[0].error_code else rows[0].committed_offset

    # --- membership ---

    def join_request(self, member_id: str = "", *, session_ms: int = 10_000) -> Any:
        protocol = join_group.JoinGroupRequest.JoinGroupRequestProtocol
        return join_group.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=20_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol(name="range", metadata=subscription("a"))],
        )

    def enter(self) -> str:
        """A member that leads, alone and in sync; its id."""
        promised = self.ask(join_group.API, 9, self.join_request())
        assert ErrorCode.of(promised.error_code) is ErrorCode.MEMBER_ID_REQUIRED
        joined = self.ask(join_group.API, 9, self.join_request(promised.member_id))
        assert (joined.error_code, joined.leader) == (0, joined.member_id)
        part = sync_group.SyncGroupRequest.SyncGroupRequestAssignment
        request = sync_group.SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[part(member_id=joined.member_id, assignment=b"part")],
        )
        synced = self.ask(sync_group.API, 5, request)
        assert (synced.error_code, synced.assignment) == (0, b"part")
        return str(joined.member_id)

    def heartbeat(self, member_id: str, generation: int = 1) -> ErrorCode:
        request = heartbeat.HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member_id
        )
        return ErrorCode.of(self.ask(heartbeat.API, 4, request).error_code)


def _partition_code(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


def offsets_partition(group: str = GROUP) -> TopicPartition:
    return TopicPartition(GROUP_OFFSETS_TOPIC, state_partition(group, PARTITIONS))


def test_offsets_outlive_their_coordinator_and_are_the_newest(cluster):
    client = GroupClient(cluster)
    assert client.offset() == -1
    for offset in (1, 2):
        assert client.commit(offset) is ErrorCode.NONE
        cluster[client.coordinator()].kill()
        assert client.offset() == offset
        for broker in cluster.brokers:
            if not broker.up:
                broker.start()
        cluster.loop.run_for(20_000)


def test_a_commit_that_is_not_replicated_is_not_promised_and_heartbeats_go_on(cluster):
    client = GroupClient(cluster)
    member = client.enter()
    coordinator = client.coordinator()
    for other in cluster.brokers:
        if other.id != coordinator:
            cluster.network.cut(coordinator, other.id)
    asked = cluster.ask(coordinator, offset_commit.API, 8, client.commit_request(9))
    beat = heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member)
    asked_too = cluster.ask(coordinator, heartbeat.API, 4, beat)
    assert client.answered(asked_too).error_code == 0
    # The member is in a generation, so it is not the one to commit so.
    code = ErrorCode.of(_partition_code(client.answered(asked)))
    assert code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    cluster.network.heal()
    assert client.heartbeat(member) is ErrorCode.NONE


def test_a_commit_waits_no_longer_than_it_may(cluster):
    client = GroupClient(cluster)
    assert client.commit(1) is ErrorCode.NONE
    coordinator = client.coordinator()
    for other in cluster.brokers:
        if other.id != coordinator:
            cluster.network.cut(coordinator, other.id)
    asked = cluster.ask(coordinator, offset_commit.API, 8, client.commit_request(2))
    group = offset_fetch.OffsetFetchRequest.OffsetFetchRequestGroup
    read = offset_fetch.OffsetFetchRequest(groups=[group(group_id=GROUP, topics=None)])
    asked_too = cluster.ask(coordinator, offset_fetch.API, 8, read)
    code = ErrorCode.of(_partition_code(client.answered(asked)))
    assert code in RETRIED
    # Not told: the offset that may be lost, nor the one before it.
    assert ErrorCode.of(client.answered(asked_too).groups[0].error_code) in RETRIED
    cluster.network.heal()
    assert client.commit(3) is ErrorCode.NONE
    assert client.offset() == 3


def test_a_generation_goes_on_with_the_next_coordinator(cluster):
    client = GroupClient(cluster)
    member = client.enter()
    cluster[client.coordinator()].kill()
    assert client.heartbeat(member) is ErrorCode.NONE
    cluster.loop.run_for(11_000)
    assert client.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_can_not_be_stored_is_refused_partition_by_partition(cluster):
    client = GroupClient(cluster)
    assert client.commit(1, metadata="m" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert client.commit(1, topic="none") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert GroupClient(cluster, "g" * 20_000).commit(1) is ErrorCode.INVALID_GROUP_ID
    assert GroupClient(cluster, "").commit(1) is ErrorCode.INVALID_GROUP_ID
    assert client.offset() == -1
    refused = client.ask(join_group.API, 9, client.join_request(session_ms=1))
    assert ErrorCode.of(refused.error_code) is ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("version", range(1, 9))
def test_every_version_tells_the_offset(cluster, version):
    client = GroupClient(cluster)
    client.commit(7)
    topic = offset_fetch.OffsetFetchRequest.OffsetFetchRequestTopic
    group = offset_fetch.OffsetFetchRequest.OffsetFetchRequestGroup
    request = offset_fetch.OffsetFetchRequest(
        group_id=GROUP,
        topics=[topic(name="a", partition_indexes=[0, 1])],
        groups=[
            group(
                group_id=GROUP,
                topics=[group.OffsetFetchRequestTopics(name="a", partition_indexes=[0, 1])],
            )
        ],
    )
    answer = client.answered(client.send(offset_fetch.API, version, request))
    topics = answer.topics if version < 8 else answer.groups[0].topics
    assert [row.committed_offset for row in topics[0].partitions] == [7, -1]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("fails_over", [True, False])
def test_offsets_in_a_transaction_come_with_its_commit(cluster, commits, fails_over):
    client = GroupClient(cluster)
    client.commit(1)
    producer = SimulatedProducer(cluster, "p")
    producer.init()
    item = txn_offset_commit.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="p",
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            item(
                name="a",
                partitions=[
                    item.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5, committed_metadata=None
                    )
                ],
            )
        ],
    )
    early = client.ask(txn_offset_commit.API, 3, request, _partition_code)
    assert ErrorCode.of(_partition_code(early)) is ErrorCode.INVALID_TXN_STATE
    enlist = add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id="p",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )
    producer.ask_coordinator(add_offsets_to_txn.API, 3, enlist, lambda a: [a.error_code])
    answer = client.ask(txn_offset_commit.API, 3, request, _partition_code)
    assert _partition_code(answer) == 0
    if fails_over:
        cluster[client.coordinator()].kill()
    assert client.offset() == 1
    assert client.offset(require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    producer.end(commits=commits)
    for _ in range(TRIES):
        if client.offset(require_stable=True) is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
            break
        cluster.loop.run_for(50)
    assert client.offset(require_stable=True) == (5 if commits else 1)
    late = client.ask(txn_offset_commit.API, 3, request, _partition_code)
    assert ErrorCode.of(_partition_code(late)) is ErrorCode.INVALID_TXN_STATE


def test_groups_are_listed_described_and_deleted_by_their_coordinator(cluster):
    client = GroupClient(cluster)
    member = client.enter()

    def listed(**filters: list[str]) -> list[tuple[str, str]]:
        request = list_groups.ListGroupsRequest(
            **{"states_filter": [], "types_filter": [], **filters}
        )
        answer = client.ask(list_groups.API, 5, request)
        return [(each.group_id, each.group_state) for each in answer.groups]

    assert listed() == listed(states_filter=["stable"]) == [(GROUP, "Stable")]
    assert listed(states_filter=["Empty"]) == listed(types_filter=["consumer"]) == []
    request = describe_groups.DescribeGroupsRequest(
        groups=[GROUP], include_authorized_operations=False
    )
    (told,) = client.ask(describe_groups.API, 5, request, lambda a: a.groups[0].error_code).groups
    assert (told.group_state, told.protocol_type, told.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [(m.member_id, m.member_assignment) for m in told.members] == [(member, b"part")]
    delete = delete_groups.DeleteGroupsRequest(groups_names=[GROUP])

    def deleted() -> ErrorCode:
        answer = client.ask(delete_groups.API, 2, delete, lambda a: a.results[0].error_code)
        return ErrorCode.of(answer.results[0].error_code)

    assert deleted() is ErrorCode.NON_EMPTY_GROUP
    leaving = leave_group.LeaveGroupRequest.MemberIdentity(member_id=member)
    left = client.ask(
        leave_group.API, 5, leave_group.LeaveGroupRequest(group_id=GROUP, members=[leaving])
    )
    assert [each.error_code for each in left.members] == [0]
    client.commit(3)
    topic = offset_delete.OffsetDeleteRequest.OffsetDeleteRequestTopic
    forget = offset_delete.OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            topic(name="a", partitions=[topic.OffsetDeleteRequestPartition(partition_index=0)])
        ],
    )
    assert client.ask(offset_delete.API, 0, forget).topics[0].partitions[0].error_code == 0
    assert client.offset() == -1
    client.commit(4)
    assert deleted() is ErrorCode.NONE
    assert deleted() is ErrorCode.GROUP_ID_NOT_FOUND
    assert listed() == []


def test_a_list_is_not_whole_while_a_coordinator_starts_anew(cluster, monkeypatch):
    client = GroupClient(cluster)
    client.commit(1)
    coordinator = client.coordinator()
    request = list_groups.ListGroupsRequest(states_filter=[], types_filter=[])

    def listed() -> tuple[ErrorCode, list[str]]:
        answer = client.answered(cluster.ask(coordinator, list_groups.API, 4, request))
        return ErrorCode.of(answer.error_code), [each.group_id for each in answer.groups]

    assert listed() == (ErrorCode.NONE, [GROUP])

    def refuse(*_: object, **__: object) -> None:
        raise KafkaError("the disk is full", ErrorCode.KAFKA_STORAGE_ERROR)

    with monkeypatch.context() as patched:
        patched.setattr(HostedPartition, "append_state", refuse)
        asked = cluster.ask(coordinator, offset_commit.API, 8, client.commit_request(2))
        assert ErrorCode.of(_partition_code(client.answered(asked))) is ErrorCode.NOT_COORDINATOR
        code, groups = listed()
        assert (code, groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert client.offset() == 1
    assert listed() == (ErrorCode.NONE, [GROUP])


def test_offsets_of_a_deleted_topic_do_not_greet_the_next_of_that_name(cluster):
    client = GroupClient(cluster)
    client.commit(5)
    assert client.offset() == 5
    cluster.answer(cluster.delete_topic("a"))
    for _ in range(TRIES):
        if client.offset() == -1:
            break
        cluster.loop.run_for(50)
    assert cluster.create_topic("a").error_code == 0
    assert client.offset() == -1


def test_offsets_that_a_client_wants_kept_for_ever_cost_no_other_group_its_coordinator(cluster):
    client = GroupClient(cluster)
    client.commit(1)
    coordinator = client.coordinator()
    before = cluster[coordinator].parts.coordinators.groups.coordinator_of(GROUP)
    request = client.commit_request(5)
    request.retention_time_ms = (1 << 63) - 1
    answer = client.answered(cluster.ask(coordinator, offset_commit.API, 4, request))
    assert ErrorCode.of(_partition_code(answer)) is ErrorCode.NONE
    assert cluster[coordinator].parts.coordinators.groups.coordinator_of(GROUP) is before
    cluster.loop.run_for(5_000)
    cluster[coordinator].kill(session_ends_at_once=True)
    assert client.offset() == 5


def test_offsets_are_read_while_too_few_replicas_are_in_sync(cluster):
    """By the next coordinator: nothing of what it has read can be lost but with its disk."""
    client = GroupClient(cluster)
    assert client.commit(7) is ErrorCode.NONE
    cluster.loop.run_for(2_000)
    first = client.coordinator()
    other = next(each for each in (1, 2, 3) if each != first)
    for broker in (other, first):
        tp = offsets_partition()
        left = {1, 2, 3} - {other, broker}
        cluster[broker].kill(session_ends_at_once=True)
        cluster.loop.run_until(
            lambda left=left, tp=tp: (
                set(cluster.state(tp).isr) <= left and cluster.state(tp).leader in left
            )
        )
    assert len(cluster.state(tp).isr) == 1
    assert client.offset() == 7
    refused = cluster.answer(client.send(offset_commit.API, 8, client.commit_request(8)))
    assert ErrorCode.of(_partition_code(refused)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.offset() == 7
