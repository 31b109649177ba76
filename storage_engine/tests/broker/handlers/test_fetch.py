"""Fetches that take several turns."""

import itertools

from simulation.world.requests import make_batch
from storage_engine.broker.handlers.records import fetch as fetch_handler
from storage_engine.broker.requests.follower_sessions import FollowerSession
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture

cluster = cluster_fixture(brokers=2, default_replication_factor="2")


def test_what_a_follower_may_fetch_since_its_first_look_is_no_secret_until_its_time_is_over(
    cluster, monkeypatch
):
    """Its fetch of many partitions is read in several turns; a record comes between two of them."""
    assert cluster.create_topic("many", 60).error_code == 0
    cluster.loop.run_for(3000)
    tp = TopicPartition("many", 0)
    leader = cluster.state(tp).leader
    broker = cluster[leader]
    requests = broker.parts.requests
    # Each step takes a turn of its own.
    monkeypatch.setattr(requests.long_work, "work_ns", itertools.count(0, 10_000_000).__next__)
    appended_ms: list[int] = []

    def append() -> None:
        appended_ms.append(cluster.loop.now_ms)
        broker.replicas.get(tp).append(make_batch(), acks=-1)

    class Answering(fetch_handler._Answering):
        def begin(self):
            for step in super().begin():
                is_here = self.handler.reader is requests.reader
                is_follower = is_here and self.request.replica_id >= 0
                if is_follower and not appended_ms:
                    append()
                yield step

    cluster.loop.run_for(700)
    monkeypatch.setattr(fetch_handler, "_Answering", Answering)

    def has_appended() -> bool:
        for session in requests.fetch_sessions:
            if isinstance(session, FollowerSession) and not appended_ms:
                # As after news of all of them.
                session.due = dict.fromkeys(session.partitions)
        return bool(appended_ms)

    cluster.loop.run_until(has_appended)
    hosted = broker.replicas.get(tp)
    cluster.loop.run_until(lambda: hosted.high_watermark == 1)
    assert cluster.loop.now_ms - appended_ms[0] < 100
