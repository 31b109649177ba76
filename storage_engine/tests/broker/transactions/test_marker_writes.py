"""The coordinator or the leader of a transaction is killed between the commit record and the
markers, which are then sent again; the copy that was under way arrives when the producer's next
transaction is open, and ends nothing of it (WriteTxnMarkers 2, KIP-1228)."""

from collections.abc import Callable

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.transactions.marker_writes import MarkerTarget, MarkerWrites
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.transactions.test_transactions import aborted, log_of, settle

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
AWAY_MS = 10_000
"""Somebody else leads and coordinates by then."""


cluster = cluster_fixture(
    "a",
    "b",
    transaction_state_log_num_partitions="3",
    min_insync_replicas="2",
    replica_lag_time_max_ms="2000",
    auto_leader_rebalance_enable="false",
)


class Network:
    """Between coordinators and leaders: knows all markers, and can be slow with some."""

    def __init__(self, cluster: SimulatedCluster, monkeypatch) -> None:
        self.cluster = cluster
        self.sent: list[list[MarkerTarget]] = []
        self.holding = False
        """Requests with a marker for A that arrive now lie before the leader's door."""
        write = MarkerWrites.write

        def noting(writes, targets, on_written) -> None:
            self.sent.append([*targets])
            if not self.holding or all(each.partition != A for each in targets):
                write(writes, targets, on_written)

        monkeypatch.setattr(MarkerWrites, "write", noting)
        self._write = write

    def copies(self) -> list[MarkerTarget]:
        """All of A's that were ever sent."""
        return [each for targets in self.sent for each in targets if each.partition == A]

    def deliver(self, copies: list[MarkerTarget]) -> list[ErrorCode]:
        """Again, to whoever leads A by now."""
        codes: list[ErrorCode] = []
        writes = self.cluster[self.cluster.state(A).leader].parts.coordinators.marker_writes
        self._write(writes, copies, codes.extend)
        self.cluster.loop.run_until(lambda: bool(codes))
        return codes


@pytest.fixture
def network(cluster, monkeypatch) -> Network:
    return Network(cluster, monkeypatch)


def producer(cluster: SimulatedCluster) -> SimulatedProducer:
    """With an epoch for each transaction, and a coordinator elsewhere than the leader of A."""
    for number in range(50):
        made = SimulatedProducer(cluster, f"p{number}", enlists=False)
        made.init()
        if made.coordinator() != cluster.state(A).leader:
            return made
    raise AssertionError("no such name")


def kill_the_coordinator(network: Network, of: SimulatedProducer) -> None:
    """Its markers are under way, and arrive in their own time."""
    cluster = network.cluster
    coordinator = of.coordinator()
    cluster[coordinator].kill()
    network.holding = False
    cluster.loop.run_for(AWAY_MS)
    cluster[coordinator].start()


def kill_the_leader(network: Network, of: SimulatedProducer) -> None:
    """The marker has come to nobody else."""
    cluster = network.cluster
    leader = cluster.state(A).leader
    cluster[leader].kill()
    network.holding = False
    cluster.loop.run_until(lambda: cluster.state(A).leader not in (-1, leader))
    cluster[leader].start()


def kill_both(network: Network, of: SimulatedProducer) -> None:
    cluster = network.cluster
    coordinator = of.coordinator()
    kill_the_leader(network, of)
    cluster[coordinator].kill()
    cluster.loop.run_for(AWAY_MS)
    cluster[coordinator].start()


def lose_the_request(network: Network, of: SimulatedProducer) -> None:
    """Nobody dies: the coordinator hears nothing and asks again."""
    network.cluster.loop.run_for(1_000)
    network.holding = False


TROUBLES: list[Callable[[Network, SimulatedProducer], None]] = [
    kill_the_coordinator,
    kill_the_leader,
    kill_both,
    lose_the_request,
]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_copy_from_before_a_kill_does_not_end_the_next_transaction(
    cluster, network, trouble, commits
):
    first = producer(cluster)
    first.write(A, b"1")
    first.write(B, b"1")
    network.holding = True
    first.end(commits=commits)
    cluster.loop.run_until(lambda: bool(network.copies()))
    assert log_of(cluster, A).last_stable_offset == 0
    late = network.copies()
    trouble(network, first)
    settle(cluster, A, B)
    assert len(network.copies()) > len(late), "it was sent again"

    begins = log_of(cluster, A).log.log_end_offset
    assert first.write(A, b"2") == begins
    assert set(network.deliver(late)) <= {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
    # Also where what is known of producers was read from the log, or came with the leadership.
    old = cluster.state(A).leader
    cluster[old].kill()
    cluster.loop.run_until(lambda: cluster.state(A).leader not in (-1, old))
    cluster[old].start()
    cluster.wait_in_sync(A, 1, 2, 3)
    assert ErrorCode.NONE not in network.deliver(late)
    assert log_of(cluster, A).last_stable_offset == begins, "the second transaction is open"
    first.write(A, b"3")
    first.end(commits=not commits)
    settle(cluster, A, B)
    wrong = 0 if not commits else begins
    assert [offset for _, offset in aborted(cluster, A)] == [wrong]
