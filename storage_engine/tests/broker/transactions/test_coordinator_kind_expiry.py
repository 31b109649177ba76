"""The ledgers of batch writes without a name expire while coordinators are killed around the record
that says so: a ledger that a writer may still need is never lost, and one that has expired does not
come back to drop or double rows (R-SPARK2)."""

import functools
from collections.abc import Callable, Iterator

import pytest

from simulation.world.broker import SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.transactions import coordinator_kind as kind
from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions.transaction_state import (
    NO_QUERY,
    ONCE_PREFIX,
    LedgerKey,
    member_transactional_id,
)
from storage_engine.core.transactions.transactions import TransactionCoordinator
from storage_engine.tests.broker.transactions.test_batch_commits import (
    SINK,
    SOURCE,
    STATE,
    STATE_PARTITIONS,
    A,
    Task,
    code_of,
    commit,
    joined,
)
from storage_engine.tests.broker.transactions.test_transactions import (
    aborted,
    log_of,
    send_no_markers,
    settle,
)

EXPIRATION_MS = 20_000
TASK_TIMEOUT_MS = 10_000
ONCE = ONCE_PREFIX + "write"
WRITTEN = {"streaming": None, ONCE_PREFIX + "by origin": {SOURCE: 7}}
"""Other queries, with their origins."""
KEPT = {"streaming", NO_QUERY}
"""The queries whose ledgers never expire; NO_QUERY has the origins of the expired ones."""


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Iterator[SimulatedCluster]:
    """Attempts are at work for seconds here, not for a day."""
    monkeypatch.setattr(
        kind,
        "TransactionCoordinator",
        functools.partial(TransactionCoordinator, sink_timeout_max_ms=EXPIRATION_MS),
    )
    made = SimulatedCluster(
        tmp_path,
        transactional_id_expiration_ms="1000",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
        transaction_state_log_num_partitions=str(STATE_PARTITIONS),
    )
    assert made.create_topic("a").error_code == 0
    yield made
    made.close()


class Writes:
    """A batch write without a name, and others, all committed."""

    def __init__(self, cluster: SimulatedCluster, *, markers: bool = True) -> None:
        self.cluster = cluster
        self.task = self._write(ONCE)
        if not markers:
            send_no_markers(self.coordinator())
        self.committed_ms = cluster.loop.now_ms
        assert commit(cluster, 0, self.task, query=ONCE) is ErrorCode.NONE
        for query, origins in WRITTEN.items():
            task = self._write(query)
            assert commit(cluster, 0, task, query=query, origins=origins) is ErrorCode.NONE
        if markers:
            settle(cluster, A)

    def _write(self, query: str) -> Task:
        return joined(self.cluster, 0, query=query, timeout_ms=TASK_TIMEOUT_MS).wrote(A)

    def coordinator(self) -> SimulatedBroker:
        return self.cluster[Task(self.cluster, 0).coordinator()]

    def kill_the_coordinator(self) -> None:
        """And wait until another has taken over, and it is back in sync."""
        cluster, killed = self.cluster, self.coordinator()
        killed.kill()
        cluster.loop.run_until(lambda: cluster.state(STATE).leader not in (-1, killed.id))
        killed.start()
        cluster.network.heal()
        cluster.wait_in_sync(STATE, 1, 2, 3)
        self.coordinator()

    def known(self) -> set[str]:
        """The queries whose ledgers the coordinator has."""
        return {key.query for key, _ in self._core().batches.ledgers()}

    def _core(self) -> TransactionCoordinator:
        """Once it has read its log."""
        coordinators = self.coordinator().parts.coordinators.transactions
        name = member_transactional_id(SINK)
        self.cluster.loop.run_until(
            lambda: isinstance(coordinators.coordinator_of(name), TransactionCoordinator)
        )
        found = coordinators.coordinator_of(name)
        assert isinstance(found, TransactionCoordinator)
        return found

    def wait_until_expired(self) -> None:
        key = LedgerKey(SINK, ONCE)
        core = self._core()
        self.cluster.loop.run_until(
            lambda: core.batches.ledger(key) is None, limit_ms=3 * EXPIRATION_MS
        )
        assert self.cluster.loop.now_ms - self.committed_ms >= EXPIRATION_MS

    def check(self) -> None:
        """Whatever happened, each row is there once, and no other ledger has gone."""
        cluster = self.cluster
        late = commit(cluster, 0, self.task, query=ONCE)
        assert late in (ErrorCode.ALREADY_COMMITTED, ErrorCode.MEMBER_LOST)
        replay = code_of(lambda: joined(cluster, 0, query="streaming", timeout_ms=TASK_TIMEOUT_MS))
        assert replay is ErrorCode.ALREADY_COMMITTED
        following = joined(cluster, 1, query="streaming", timeout_ms=TASK_TIMEOUT_MS)
        assert following.origins == {SOURCE: 7}
        settle(cluster, A)
        assert aborted(cluster, A) == []
        rows_and_markers = 2 * (1 + len(WRITTEN))
        assert log_of(cluster, A).log.log_end_offset == rows_and_markers


def before_it_is_due(writes: Writes) -> None:
    writes.cluster.loop.run_for(EXPIRATION_MS // 2)
    writes.kill_the_coordinator()
    assert ONCE in writes.known()
    assert commit(writes.cluster, 0, writes.task, query=ONCE) is ErrorCode.ALREADY_COMMITTED


def when_the_record_is_with_nobody_else(writes: Writes) -> None:
    """It is lost, and the ledger is there again, until the next coordinator says the same."""
    cluster, coordinator = writes.cluster, writes.coordinator()
    remaining_ms = EXPIRATION_MS - (cluster.loop.now_ms - writes.committed_ms)
    cluster.loop.run_for(remaining_ms - 1_000)
    for other in cluster.brokers:
        if other is not coordinator:
            cluster.network.cut(coordinator.id, other.id)
    end = coordinator.logs.logs[STATE].log_end_offset
    writes.wait_until_expired()
    assert coordinator.logs.logs[STATE].log_end_offset > end, "it says so in its log"
    assert all(
        other.logs.logs[STATE].log_end_offset == end
        for other in cluster.brokers
        if other is not coordinator
    )
    writes.kill_the_coordinator()


def when_the_record_is_replicated(writes: Writes) -> None:
    writes.wait_until_expired()
    writes.cluster.loop.run_until(
        lambda: len({each.logs.logs[STATE].log_end_offset for each in writes.cluster.brokers}) == 1
    )
    writes.kill_the_coordinator()
    assert ONCE not in writes.known()


def again_and_again(writes: Writes) -> None:
    writes.cluster.loop.run_for(EXPIRATION_MS)
    for _ in range(3):
        writes.kill_the_coordinator()


@pytest.mark.parametrize(
    "kill",
    [
        before_it_is_due,
        when_the_record_is_with_nobody_else,
        when_the_record_is_replicated,
        again_and_again,
    ],
)
def test_a_ledger_expires_once_whenever_its_coordinator_is_killed(
    cluster, kill: Callable[[Writes], None]
):
    writes = Writes(cluster)
    kill(writes)
    writes.check()
    writes.wait_until_expired()
    assert writes.known() == KEPT
    assert commit(cluster, 0, writes.task, query=ONCE) is ErrorCode.MEMBER_LOST
    # It does not come back with any of the others.
    for _ in cluster.brokers:
        writes.kill_the_coordinator()
        assert writes.known() == KEPT
    writes.check()


def test_a_ledger_with_unwritten_markers_does_not_expire_before_the_next_coordinator_wrote_them(
    cluster,
):
    writes = Writes(cluster, markers=False)
    cluster.loop.run_for(2 * EXPIRATION_MS)
    assert ONCE in writes.known()
    assert log_of(cluster, A).last_stable_offset == 0
    writes.kill_the_coordinator()
    settle(cluster, A)
    writes.wait_until_expired()
    writes.check()
    assert writes.known() == KEPT
