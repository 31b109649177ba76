"""DeleteRecords on a cluster whose brokers die and are cut off: real brokers over a simulated
ZooKeeper and network. Source: R-LOG9, KIP-107."""

import itertools
from typing import Any

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.open_logs import OpenLogs
from storage_engine.protocol.messages import delete_records
from storage_engine.tests.broker.settings.settings_requests import APPEND, SUBTRACT, TOPIC, alter

TP = TopicPartition("t", 0)
RECORDS = 5


@pytest.fixture
def topic(cluster) -> SimulatedCluster:
    """Three replicas in sync and five records."""
    assert cluster.create_topic("t").error_code == 0
    for number in range(RECORDS):
        assert cluster.produced(TP, b"record %d" % number) == number
    cluster.wait_in_sync(TP, 1, 2, 3)
    return cluster


def send_delete(
    cluster: SimulatedCluster, broker: int, offset: int, *, timeout_ms: int = 10_000
) -> list[Any]:
    topic = delete_records.DeleteRecordsRequest.DeleteRecordsTopic
    partition = topic.DeleteRecordsPartition(partition_index=TP.partition, offset=offset)
    request = delete_records.DeleteRecordsRequest(
        topics=[topic(name=TP.topic, partitions=[partition])], timeout_ms=timeout_ms
    )
    return cluster.ask(broker, delete_records.API, 2, request)


def outcome(cluster: SimulatedCluster, answers: list[Any]) -> tuple[ErrorCode, int]:
    (row,) = cluster.answer(answers).topics[0].partitions
    return ErrorCode.of(row.error_code), row.low_watermark


def delete(cluster: SimulatedCluster, offset: int, **options: int) -> tuple[ErrorCode, int]:
    leader = cluster.state(TP).leader
    return outcome(cluster, send_delete(cluster, leader, offset, **options))


def starts(cluster: SimulatedCluster) -> list[int]:
    return [b.logs.logs[TP].log_start_offset for b in cluster.brokers if b.up]


def test_all_replicas_begin_at_the_offset_when_the_answer_comes(topic):
    assert delete(topic, 3) == (ErrorCode.NONE, 3)
    assert starts(topic) == [3, 3, 3]


def test_a_reader_gets_nothing_of_what_was_deleted(topic):
    delete(topic, 3)
    leader = topic.state(TP).leader
    (below,) = topic.answer(topic.fetch(leader, TP, 2)).partitions
    assert ErrorCode.of(below.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert below.log_start_offset == 3
    (above,) = topic.answer(topic.fetch(leader, TP, 3)).partitions
    assert b"record 3" in bytes(above.records)
    assert b"record 2" not in bytes(above.records)


def test_minus_one_stands_for_the_high_watermark(topic):
    assert delete(topic, -1) == (ErrorCode.NONE, RECORDS)
    assert topic.produced(TP, b"next") == RECORDS


def test_deleting_what_is_deleted_changes_nothing(topic):
    delete(topic, 3)
    assert delete(topic, 1) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize("offset", [RECORDS + 1, -2])
def test_an_offset_that_can_not_be_the_start_is_refused(topic, offset):
    assert delete(topic, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert starts(topic) == [0, 0, 0]


def test_what_is_not_committed_can_not_be_deleted(topic):
    leader = topic.state(TP).leader
    for other in {1, 2, 3} - {leader}:
        topic.network.cut(leader, other)
    topic.answer(topic.produce(leader, TP, b"not committed", acks=1))
    answers = send_delete(topic, leader, RECORDS + 1)
    assert outcome(topic, answers) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_a_follower_refuses(topic):
    follower = next(b for b in (1, 2, 3) if b != topic.state(TP).leader)
    answers = send_delete(topic, follower, 3)
    assert outcome(topic, answers) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_leader_without_a_lease_refuses(topic):
    leader = topic.state(TP).leader
    topic[leader].session.cut_off()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 1)
    answers = send_delete(topic, leader, 3)
    assert outcome(topic, answers)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_topic_that_deletes_nothing_by_policy_refuses(topic):
    alter(topic, topic.state(TP).leader, TOPIC, "t", ("cleanup.policy", APPEND, "delete"))
    alter(topic, topic.state(TP).leader, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    assert delete(topic, 3) == (ErrorCode.POLICY_VIOLATION, -1)


def test_a_live_follower_that_does_not_answer_is_waited_for_until_the_time_is_over(topic):
    leader = topic.state(TP).leader
    follower = next(b for b in (1, 2, 3) if b != leader)
    topic.network.cut(leader, follower)
    assert delete(topic, 3, timeout_ms=3000) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    topic.network.heal()
    assert delete(topic, 3) == (ErrorCode.NONE, 3)


def test_a_dead_follower_is_not_waited_for_and_follows_when_it_returns(topic):
    follower = next(b for b in (1, 2, 3) if b != topic.state(TP).leader)
    topic[follower].kill()
    answers = send_delete(topic, topic.state(TP).leader, 3, timeout_ms=60_000)
    assert outcome(topic, answers) == (ErrorCode.NONE, 3)
    topic[follower].start()
    topic.loop.run_until(lambda: TP in topic[follower].logs.logs)
    topic.loop.run_until(lambda: starts(topic) == [3, 3, 3])


def test_a_leader_that_is_replaced_meanwhile_says_so(topic):
    leader = topic.state(TP).leader
    for other in {1, 2, 3} - {leader}:
        topic.network.cut(leader, other)
    answers = send_delete(topic, leader, 3, timeout_ms=60_000)
    topic[leader].session.cut_off()
    topic.loop.run_until(lambda: topic.state(TP).leader != leader)
    topic[leader].session.reconnect()
    topic.network.heal()
    assert outcome(topic, answers)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_deletion_that_was_answered_survives_the_death_of_all_brokers(topic):
    assert delete(topic, 3) == (ErrorCode.NONE, 3)
    for broker in topic.brokers:
        broker.kill()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 100)
    for broker in topic.brokers:
        broker.start()
    assert starts(topic) == [3, 3, 3]
    assert topic.produced(TP, b"next") == RECORDS


def test_a_replica_that_can_not_write_its_start_down_answers_with_a_storage_error(
    topic, monkeypatch
):
    def fail(_self: OpenLogs, _folder: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(OpenLogs, "write_log_starts", fail)
    assert delete(topic, 3)[0] is ErrorCode.KAFKA_STORAGE_ERROR


def test_who_asks_again_while_the_start_is_not_written_yet_waits_for_that(tmp_path, monkeypatch):
    """A request of many partitions is worked on in turns, and writes at its end."""
    cluster = SimulatedCluster(tmp_path, 1, default_replication_factor="1")
    assert cluster.create_topic("t", 40).error_code == 0
    for number in range(40):
        assert cluster.produced(TopicPartition("t", number), b"record") == 0
    parts = cluster[1].parts
    monkeypatch.setattr(
        parts.requests.long_work, "work_ns", itertools.count(0, 10_000_000).__next__
    )
    happened: list[str] = []
    write, respond = parts.replicas.log_starts.keep_now, ApiCall.respond

    def noted(moved):
        happened.append("written")
        return write(moved)

    def answering(call, message):
        happened.append("answered")
        respond(call, message)

    monkeypatch.setattr(parts.replicas.log_starts, "keep_now", noted)
    monkeypatch.setattr(ApiCall, "respond", answering)
    topic = delete_records.DeleteRecordsRequest.DeleteRecordsTopic
    partitions = [
        topic.DeleteRecordsPartition(partition_index=number, offset=1) for number in range(40)
    ]
    many = delete_records.DeleteRecordsRequest(
        topics=[topic(name="t", partitions=partitions)], timeout_ms=5000
    )
    all_of_them = cluster.ask(1, delete_records.API, 2, many)
    one_again = send_delete(cluster, 1, 1)
    cluster.answer(all_of_them)
    assert outcome(cluster, one_again) == (ErrorCode.NONE, 1)
    assert happened.index("written") < happened.index("answered")
    cluster.close()
