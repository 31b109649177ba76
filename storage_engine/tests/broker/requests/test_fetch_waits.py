"""Which fetches wait, and that nothing is kept of those that do no more."""

from types import SimpleNamespace

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.requests.fetch_reads import FetchRead
from storage_engine.broker.requests.fetch_waits import FetchWaits
from storage_engine.broker.requests.follower_sessions import FollowerSession
from storage_engine.protocol.apis.fetch import FetchRequest

WAIT_MS = 100


def asked(replica_id: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=100, partitions=[], replica_id=replica_id
    )


def test_fetches_of_clients_and_followers_are_counted_while_they_wait_and_nothing_stays():
    loop = SimulatedLoop()
    waits = FetchWaits(SimpleNamespace(), replicas=SimpleNamespace(), scheduler=loop)
    ended: list[FetchRead | None] = []

    def gone() -> bool:
        return False

    waits.wait(asked(-1), FetchRead(100), finish=ended.append, gone=gone)
    for replica_id in range(50):
        # In an open cluster anybody may claim to be any follower.
        request = asked(replica_id)
        session = FollowerSession(replica_id + 1, request, now_ms=0, hosted=lambda tp: None)
        waits.wait_in_session(
            session, request, finish=lambda request, read: ended.append(read), gone=gone
        )
        waits.wait(request, FetchRead(100), finish=ended.append, gone=gone)
    assert waits.count == 101
    waits.of_followers.end(7)
    assert waits.count == 99
    loop.run_for(WAIT_MS + 1)
    assert len(ended) == 101
    assert waits.count == 0
    assert not waits.of_followers._waiting
