"""Records in the logs of coordinators that are sound bytes and mean nothing here: a later version
wrote them, or a broken one. What they are about is refused; all else is served."""

from typing import Any

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.records import GroupKey, OffsetKey
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.transactions.transaction_state import (
    NO_BATCH,
    LedgerKey,
    LedgerRecord,
    MemberEnd,
    MemberKey,
    TransactionalIdKey,
    named_write,
    state_partition,
)
from storage_engine.protocol.apis import abort_members
from storage_engine.protocol.state import group_records, transaction_records
from storage_engine.protocol.state.state_batches import encode_raw
from storage_engine.tests.broker.groups.test_consumer_groups import (
    A,
    GroupClient,
    offsets_partition,
)
from storage_engine.tests.broker.support import cluster_fixture, refused
from storage_engine.tests.broker.transactions.test_batch_commits import (
    QUERY,
    SINK,
    Task,
    ask,
    code_of,
    commit,
)
from storage_engine.tests.broker.transactions.test_transactions import (
    aborted,
    log_of,
    send_no_markers,
    settle,
)

LATER = b"\x7f\xff of a later version"
B = TopicPartition("b", 0)
NEGATIVE = b"\0\1" + b"\xff" * 40
ENDS_EARLY = b"\0"


cluster = cluster_fixture(
    "a",
    "b",
    transaction_state_log_num_partitions="1",
    offsets_topic_num_partitions="3",
    auto_leader_rebalance_enable="false",
)


def write(cluster: SimulatedCluster, tp: TopicPartition, *entries: tuple[bytes, bytes]) -> None:
    """Append them as the coordinator of a later version would, which then dies."""
    leader = cluster.state(tp).leader
    partition = cluster[leader].replicas.get(tp)
    batch = encode_raw(entries, now_ms=cluster.loop.wall_ms())
    partition.append_state(partition.leader_epoch, batch)
    cluster.loop.run_for(2_000)
    cluster[leader].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.state(tp).leader not in (-1, leader))
    cluster.loop.run_for(1_000)


@pytest.mark.parametrize("value", [LATER, NEGATIVE, ENDS_EARLY])
def test_one_transactional_id_or_sink_is_refused_and_the_others_go_on(cluster, caplog, value):
    good = SimulatedProducer(cluster, "good")
    bad = SimulatedProducer(cluster, "bad")
    for each in (good, bad):
        each.init()
    good.add(A)
    good.write(A, b"1")
    open_task = Task(cluster, 0, query="other").join()
    key = transaction_records.encode_key
    write(
        cluster,
        TopicPartition(TRANSACTION_STATE_TOPIC, state_partition("bad", 1)),
        (key(TransactionalIdKey("bad")), value),
        (key(LedgerKey(SINK, QUERY)), value),
        (key(MemberKey(open_task.producer_id)), value),
        (b"\0", b"a key that ends too early"),
        (b"\x7f\xff", b"a key of a later version"),
    )
    good.end(commits=True)
    with refused(ErrorCode.UNKNOWN_SERVER_ERROR):
        bad.init()
    assert code_of(Task(cluster, 0).join) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert commit(cluster, 0) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert commit(cluster, 0, open_task, query="other") is ErrorCode.MEMBER_LOST
    # What the unreadable ledger has copied, a task of another query might copy again.
    others = Task(cluster, 0, query="other").join
    assert code_of(others) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert commit(cluster, 0, query="other") is ErrorCode.NONE
    told = [each for each in caplog.messages if "unreadable in the state log" in each]
    assert len(told) == 4
    assert any("'bad'" in each and "refused until a broker" in each for each in told)


def test_a_commit_that_was_answered_is_not_aborted_where_its_ledger_can_not_be_read(cluster):
    """A broker of a later version led between the commit's record and its markers."""
    task = Task(cluster, 0, timeout_ms=20_000).join().wrote(A)
    state = TopicPartition(TRANSACTION_STATE_TOPIC, state_partition(SINK, 1))
    leader = cluster[cluster.state(state).leader]
    send_no_markers(leader)
    assert commit(cluster, 0, task) is ErrorCode.NONE
    ledger = leader.parts.coordinators.transactions.coordinator_of(SINK).batches.ledger(
        LedgerKey(SINK, QUERY)
    )
    key = transaction_records.encode_key(LedgerKey(SINK, QUERY))
    write(cluster, state, (key, LATER))
    leader.start()
    given_up = abort_members.AbortMembersRequest(
        sink=SINK, query="another", members=frozenset([task.member])
    )
    for act in (lambda: ask(cluster, abort_members.API, given_up), lambda: task.add(B)):
        assert code_of(act) is ErrorCode.UNKNOWN_SERVER_ERROR
    cluster.loop.run_for(120_000)
    assert (log_of(cluster, A).last_stable_offset, aborted(cluster, A)) == (0, [])
    write(cluster, state, (key, transaction_records.encode_record(ledger)))
    settle(cluster, A)
    assert aborted(cluster, A) == []


def test_two_ledgers_that_contradict_each_other_are_refused_and_the_others_go_on(cluster, caplog):
    other = Task(cluster, 0, query="other").join().wrote(A)
    end = MemberEnd(5, 0, True, frozenset())
    record = transaction_records.encode_record(LedgerRecord(last=0, ends=(end,)))
    keys = [LedgerKey(SINK, QUERY), LedgerKey(SINK, "second")]
    write(
        cluster,
        TopicPartition(TRANSACTION_STATE_TOPIC, state_partition(SINK, 1)),
        *((transaction_records.encode_key(key), record) for key in keys),
    )
    for key in keys:
        task = Task(cluster, 1, query=key.query)
        assert code_of(task.join) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert any(
            str(key) in each and "ends in several places" in each for each in caplog.messages
        )
    assert commit(cluster, 0, other, query="other") is ErrorCode.NONE
    settle(cluster, A)


def test_ends_of_a_named_write_that_has_committed_nothing_end_no_coordinator(cluster):
    """Its part of the sink has no committed number. The markers are written all the same."""
    other = Task(cluster, 0).join().wrote(A)
    end = MemberEnd(5, 0, True, frozenset([B]))
    key = LedgerKey(SINK, named_write("part", 0))
    state = TopicPartition(TRANSACTION_STATE_TOPIC, state_partition(SINK, 1))
    record = transaction_records.encode_record(LedgerRecord(last=NO_BATCH, ends=(end,)))
    write(cluster, state, (transaction_records.encode_key(key), record))
    assert commit(cluster, 0, other) is ErrorCode.NONE
    settle(cluster, A)
    assert log_of(cluster, B).log.log_end_offset == 1


@pytest.mark.parametrize("value", [LATER, ENDS_EARLY])
def test_a_member_that_can_not_be_read_is_not_said_to_be_given_up(cluster, value):
    task = Task(cluster, 0).join().wrote(A)
    state = TopicPartition(TRANSACTION_STATE_TOPIC, state_partition(SINK, 1))
    write(cluster, state, (transaction_records.encode_key(MemberKey(task.producer_id)), value))
    given_up = abort_members.AbortMembersRequest(
        sink=SINK, query=QUERY, members=frozenset([task.member])
    )
    for act in (lambda: ask(cluster, abort_members.API, given_up), lambda: task.add(B)):
        assert code_of(act) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert commit(cluster, 0, task) is ErrorCode.MEMBER_LOST


@pytest.mark.parametrize("value", [LATER, ENDS_EARLY])
def test_an_offset_that_means_nothing_is_an_error_until_another_is_committed(
    cluster, caplog, value
):
    client, same_log = GroupClient(cluster), GroupClient(cluster, "other")
    number = 0
    while offsets_partition(same_log.group) != offsets_partition():
        number += 1
        same_log = GroupClient(cluster, f"other{number}")
    for each in (client, same_log):
        assert each.commit(7) is ErrorCode.NONE
    member = same_log.enter()
    key: Any = group_records.encode_key
    write(
        cluster,
        offsets_partition(),
        (key(OffsetKey(client.group, A)), value),
        (key(GroupKey(client.group)), value),
    )
    # Neither the older offset nor none: that would be read twice, or not at all.
    assert client.offset() is ErrorCode.UNKNOWN_SERVER_ERROR
    assert same_log.offset() == 7
    assert same_log.heartbeat(member) is ErrorCode.NONE
    assert client.commit(9) is ErrorCode.NONE
    assert client.offset() == 9
    assert client.enter()
    told = [each for each in caplog.messages if "unreadable in the state log" in each]
    assert len(told) == 2
    assert any("commit another offset" in each for each in told)
