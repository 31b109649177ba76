"""Named batch writes in a simulated cluster: what brokers log, whom they refuse, and numbers that
outlive their ledgers and their coordinators. Source: R-SPARK2."""

import logging
from dataclasses import replace
from uuid import UUID

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.coordinators import state_topic
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions import named_claims
from storage_engine.core.transactions.transaction_state import NumbersKey, named_write
from storage_engine.protocol.apis import (
    abort_members,
    batch_heartbeat,
    commit_batch,
    join_batch,
    wire,
)
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.transactions.test_batch_commits import (
    SINK,
    STATE,
    STATE_PARTITIONS,
    A,
    Task,
)
from storage_engine.tests.broker.transactions.test_transactions import log_of, settle

ALREADY = ErrorCode.ALREADY_COMMITTED
RUN, LATER_RUN = UUID(int=1), UUID(int=2)
SOURCE = TopicPartition("source", 0)


cluster = cluster_fixture("a", transaction_state_log_num_partitions=str(STATE_PARTITIONS))


class Job(Task):
    """A task that writes a number of the part `t`, unless it has another query."""

    def __init__(self, cluster, number: int, *, owner: str = "", run: UUID | None = None, **how):
        super().__init__(cluster, number, query=how.get("query") or named_write("t", number))
        self._whose = {"owner": owner, "run": run}

    def begin(self):
        request = join_batch.JoinBatchRequest(
            sink=SINK,
            query=self.query,
            batch=self.batch,
            timeout_ms=self.timeout_ms,
            nonce=UUID(int=1),
            **self._whose,
        )
        answer = self.ask_coordinator(join_batch.API, 0, request, lambda a: [a.error_code])
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.origins = dict(answer.origins)
        return self.wrote(A)

    def commit(self, **counts):
        request = commit_batch.CommitBatchRequest(
            sink=SINK,
            query=self.query,
            batch=self.batch,
            members=frozenset([self.member] if self.producer_id != -1 else []),
            **self._whose,
            **counts,
        )
        return self.ask_coordinator(commit_batch.API, 0, request, lambda a: [a.error_code])


def refusal(act) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        act()
    return raised.value


def dropped(caplog) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_rows_that_are_dropped_are_told_with_sink_number_and_reason(cluster, caplog):
    first, second = (Job(cluster, 5, owner="q", run=run).begin() for run in (RUN, LATER_RUN))
    second.commit(rows=7, dropped=0)
    caplog.clear()
    assert refusal(lambda: second.commit(rows=7, dropped=0)).code is ErrorCode.ALREADY_COMMITTED
    assert not dropped(caplog), "its own answer was lost"
    again = Job(cluster, 5, owner="q", run=LATER_RUN)
    assert refusal(lambda: again.commit(rows=0, dropped=9)).code is ErrorCode.ALREADY_COMMITTED
    lines = dropped(caplog)
    assert len(lines) == 2
    for part in (f"sink='{SINK}'", "/t'", "batch=5", "rows=9", "committed before", "rows=7"):
        assert part in lines[0]
    assert "another number of rows" in lines[1] and "had rows=7" in lines[1]
    caplog.clear()
    other = Job(cluster, 5, owner="r", run=RUN)
    assert refusal(lambda: other.commit(rows=0, dropped=9)).code is ErrorCode.BATCH_ID_TAKEN
    assert "rows=9" in dropped(caplog)[0] and "by another write" in dropped(caplog)[0]
    caplog.clear()
    Job(cluster, 6).begin().commit(rows=3, dropped=4, origins={SOURCE: 9})
    (line,) = dropped(caplog)
    assert "batch=6 rows=4" in line and "origin" in line
    assert refusal(lambda: first.commit(rows=7, dropped=0)).code is ErrorCode.RUN_REPLACED


def test_a_faithful_replay_has_the_same_number_of_rows_however_many_are_written(cluster, caplog):
    """Some that the sink has by origin were never written, and are no difference."""
    first = Job(cluster, 5).begin()
    first.commit(rows=5, dropped=5)
    caplog.clear()
    assert refusal(lambda: first.commit(rows=5, dropped=5)).code is ErrorCode.ALREADY_COMMITTED
    (line,) = dropped(caplog)
    assert "rows=5" in line and "origin" in line, "also where nobody heard of it the first time"
    caplog.clear()
    replay = Job(cluster, 5)
    assert refusal(lambda: replay.commit(rows=0, dropped=10, drained=1)).code is ALREADY
    (line,) = dropped(caplog)
    assert "rows=10: " in line and "committed before" in line


@pytest.mark.parametrize("rows", [1, 5])
def test_what_a_client_does_not_tell_is_not_counted(cluster, caplog, rows):
    """`MicroBatches.commit` with the rows alone."""
    first, second = (Job(cluster, 5).begin() for _ in range(2))
    first.commit(rows=rows)
    caplog.clear()
    assert refusal(lambda: second.commit(rows=rows)).code is ErrorCode.ALREADY_COMMITTED
    (line,) = dropped(caplog)
    assert f"batch=5 rows={rows}: " in line
    caplog.clear()
    assert refusal(lambda: Job(cluster, 5).commit(drained=1, rows=0)).code is ALREADY
    (line,) = dropped(caplog)
    assert "rows=unknown: " in line
    caplog.clear()
    assert refusal(lambda: second.commit()).code is ALREADY
    (line,) = dropped(caplog)
    assert "rows=unknown: " in line


def test_a_batch_without_rows_drops_none(cluster, caplog):
    empty = Job(cluster, 5)
    empty.commit(rows=0, dropped=0)
    assert refusal(lambda: empty.commit(rows=0, dropped=0)).code is ErrorCode.ALREADY_COMMITTED
    assert not dropped(caplog)


def test_a_name_of_another_number_is_refused(cluster):
    forged = Job(cluster, 5, query=named_write("t", 6))
    assert refusal(forged.begin).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("number", ["05", "00000000000000000005", "9" * 5000, "\x01" * 30_000])
def test_a_number_that_is_written_otherwise_is_refused(cluster, number):
    job = Job(cluster, 5, query=f"__headrace_number/{number}/t")
    for act in (job.begin, job.commit):
        assert refusal(act).code is ErrorCode.INVALID_REQUEST


LONG = "\U0001f600" * 10_000


def boundless(spec):
    """The API of a client that keeps to no limit of strings."""

    def encode_request(version, request):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "MAX_STRING_BYTES", 1 << 20)
            return [b"".join(bytes(each) for each in spec.encode_request(version, request))]

    return replace(spec, encode_request=encode_request)


@pytest.mark.parametrize("long", ["sink", "query", "owner", "origin"])
def test_a_name_that_no_record_can_hold_is_refused(cluster, long):
    """The coordinator would start anew at each of them."""
    stranger = Task(cluster, 0)
    who = {"sink": SINK, "query": "q"} | ({long: LONG} if long in ("sink", "query") else {})
    owner = {"owner": LONG} if long == "owner" else {}
    origins = {"origins": {SOURCE._replace(topic=LONG): 5}} if long == "origin" else {}
    members = frozenset({(1, 0)})
    requests = [
        (commit_batch.API, commit_batch.CommitBatchRequest(
            **who, **owner, **origins, batch=0, members=frozenset()
        )),
    ]  # fmt: skip
    if long != "origin":
        join = join_batch.JoinBatchRequest(
            **who, **owner, batch=0, timeout_ms=60_000, nonce=UUID(int=1)
        )
        requests.append((join_batch.API, join))
    if long in ("sink", "query"):
        requests.append(
            (batch_heartbeat.API, batch_heartbeat.BatchHeartbeatRequest(**who, batch=0))
        )
        requests.append(
            (abort_members.API, abort_members.AbortMembersRequest(**who, members=members))
        )
    leader = cluster[stranger.coordinator()]
    core = leader.parts.coordinators.transactions.coordinator_of(stranger.transactional_id)
    for spec, request in requests:
        answer = cluster.answer(cluster.ask(stranger.coordinator(), boundless(spec), 0, request))
        assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_REQUEST
        assert "32000 bytes at most" in answer.error_message
    assert leader.parts.coordinators.transactions.coordinator_of(stranger.transactional_id) is core


def test_numbers_outlive_their_ledgers_and_their_coordinators(cluster, monkeypatch):
    monkeypatch.setattr(named_claims, "LEDGERS_KEPT", 2)
    numbers = [0, 1, 2, 9, 3, 4]
    jobs = [Job(cluster, number) for number in numbers]
    for job in jobs:
        job.begin().commit(rows=1, dropped=0)
        settle(cluster, A)
    coordinator = cluster[jobs[0].coordinator()]
    core = coordinator.parts.coordinators.transactions.coordinator_of(jobs[0].transactional_id)
    cluster.loop.run_until(lambda: core.batches.numbers(NumbersKey(SINK, "t")) is not None)
    cluster.loop.run_for(1_000)
    end = log_of(cluster, A).log.log_end_offset
    for _ in range(2):
        killed = cluster[jobs[0].coordinator()]
        killed.kill()
        for number in numbers:
            told = refusal(Job(cluster, number).begin)
            assert told.code is ErrorCode.ALREADY_COMMITTED
        killed.start()
        cluster.wait_in_sync(STATE, 1, 2, 3)
    assert log_of(cluster, A).log.log_end_offset == end
    Job(cluster, 5).begin().commit(rows=1, dropped=0)


def test_origins_that_do_not_fit_together_are_refused_and_restart_no_coordinator(
    tmp_path, monkeypatch
):
    """The origins of ended writes go to one record of the sink, which would grow too large."""
    monkeypatch.setattr(state_topic, "STATE_MESSAGE_MAX_BYTES", 64 << 10)
    cluster = SimulatedCluster(tmp_path, transaction_state_log_num_partitions="1")
    assert cluster.create_topic("a").error_code == 0

    def writes(number: int) -> Job:
        sources = range(1600 * number, 1600 * (number + 1))
        origins = {SOURCE._replace(partition=each): 5 for each in sources}
        job = Job(cluster, number).begin()
        job.commit(origins=origins)
        settle(cluster, A)
        return job

    job = writes(0)
    core = cluster[job.coordinator()].parts.coordinators.transactions.coordinator_of(
        job.transactional_id
    )
    for number in (1, 2, 3):
        told = refusal(lambda number=number: writes(number))
        assert told.code is ErrorCode.MESSAGE_TOO_LARGE
    cluster.loop.run_for(20_000)
    leader = cluster[job.coordinator()]
    assert leader.parts.coordinators.transactions.coordinator_of(job.transactional_id) is core
    assert len(Job(cluster, 4).begin().origins) == 1600
    cluster.close()
