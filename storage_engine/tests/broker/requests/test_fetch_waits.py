"""Which fetches wait, and that nothing is kept of those that do no more."""

from types import SimpleNamespace

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.requests.fetch_reads import FetchRead
from storage_engine.broker.requests.fetch_waits import FetchWaits
from storage_engine.broker.requests.follower_sessions import FollowerSession
from storage_engine.protocol.apis.fetch import FetchPartition, FetchPartitionResponse, FetchRequest

WAIT_MS = 100
NAMED = FetchPartition("t", 0, 0, 100)


def asked(replica_id: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=100, partitions=[NAMED], replica_id=replica_id
    )


def test_fetches_of_clients_and_followers_are_counted_while_they_wait_and_nothing_stays():
    loop = SimulatedLoop()
    nothing_here = SimpleNamespace(get=lambda tp: None)
    waits = FetchWaits(SimpleNamespace(), replicas=nothing_here, scheduler=loop, lag_max_ms=10_000)
    ended: list[FetchRead | None] = []

    def gone() -> bool:
        return False

    def finish(_request: FetchRequest, read: FetchRead | None) -> None:
        ended.append(read)

    def wait(request: FetchRequest, session: FollowerSession | None = None) -> None:
        read = FetchRead(100)
        read.partitions = [FetchPartitionResponse(NAMED.topic, NAMED.partition, 3)]
        assert waits.wait(request, read, session=session, finish=finish, gone=gone)

    wait(asked(-1))
    for replica_id in range(50):
        # In an open cluster anybody may claim to be any follower.
        request = asked(replica_id)
        session = FollowerSession(replica_id + 1, request, now_ms=0, hosted=lambda tp: None)
        wait(request, session)
        wait(request)
    assert waits.count == 101
    waits.of_followers.end(7)
    assert waits.count == 99
    loop.run_for(WAIT_MS + 1)
    assert len(ended) == 101
    assert waits.count == 0
    assert not waits.of_followers._waiting


def test_a_follower_whose_own_limit_is_longer_does_not_wait_until_it_lags_here():
    loop = SimulatedLoop()
    nothing_here = SimpleNamespace(get=lambda tp: None)
    waits = FetchWaits(SimpleNamespace(), replicas=nothing_here, scheduler=loop, lag_max_ms=WAIT_MS)
    request = asked(1)._replace(max_wait_ms=25 * WAIT_MS)
    session = FollowerSession(1, request, now_ms=0, hosted=lambda tp: None)
    ended: list[FetchRequest] = []

    def finish(request: FetchRequest, _read: FetchRead | None) -> None:
        ended.append(request)

    assert waits.wait(request, FetchRead(100), session=session, finish=finish, gone=lambda: False)
    loop.run_for(WAIT_MS // 2 - 1)
    assert not ended
    loop.run_for(2)
    assert len(ended) == 1
