"""A broker has one coordinator for each partition of their topic that it leads, and begins another
one where that has ended or could not read its log (KIP-98)."""

from storage_engine.broker.coordinators.state_load import StateLoad
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import CorruptRecordError, ErrorCode, LogFullError
from storage_engine.protocol.messages import end_txn
from storage_engine.tests.broker.transactions.test_transactions import (
    A,
    B,
    aborted,
    cluster,
    log_of,
    producer,
    settle,
)

__all__ = ["cluster"]


def test_an_open_transaction_goes_on_with_the_next_coordinator(cluster):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"1")
    cluster[first.coordinator()].kill()
    first.add(B)
    first.write(B, b"2")
    first.write(A, b"3")
    first.end(commits=True)
    settle(cluster, A, B)
    assert aborted(cluster, A) == aborted(cluster, B) == []


def test_a_coordinator_whose_record_is_refused_starts_anew_from_the_log(cluster, monkeypatch):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"1")
    broker = cluster[first.coordinator()]
    refusals = []

    def refuse(partition, leader_epoch, records, **_):
        refusals.append(partition)
        raise LogFullError("no room")

    append_state = HostedPartition.append_state
    monkeypatch.setattr(HostedPartition, "append_state", refuse)
    answers = cluster.ask(broker.id, end_txn.API, 4, first.end_request(commits=True))
    code = ErrorCode.of(cluster.answer(answers).error_code)
    assert refusals and code is ErrorCode.NOT_COORDINATOR
    monkeypatch.setattr(HostedPartition, "append_state", append_state)
    assert log_of(cluster, A).last_stable_offset == 0
    first.end(commits=True)
    settle(cluster, A)
    assert aborted(cluster, A) == []


def test_a_state_log_that_can_not_be_read_is_read_again(cluster, monkeypatch):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"1")
    failures: list[dict] = []
    replay = StateLoad._replay

    def damaged(load, *piece):
        if len(failures) < 2:
            failures.append(load._content)
            raise CorruptRecordError("damaged")
        return replay(load, *piece)

    monkeypatch.setattr(StateLoad, "_replay", damaged)
    cluster[first.coordinator()].kill()
    first.end(commits=True)
    assert len(failures) == 2
    settle(cluster, A)
    assert aborted(cluster, A) == []
