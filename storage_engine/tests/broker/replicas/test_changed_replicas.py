"""Periodic work passes by the replicas that nobody has written to, and finds each that has
something to do."""

from dataclasses import replace

from storage_engine.broker.replicas.changed_replicas import ROUND_MS, ChangedReplicas
from storage_engine.tests.broker.replicas.test_follower_watches import ALL, TP, cluster, lead

__all__ = ["cluster"]


def test_periodic_work_passes_by_logs_that_nobody_has_written_to(cluster):
    cluster.loop.run_for(ROUND_MS)
    for broker in ALL:
        replicas = cluster[broker].replicas
        changed = ChangedReplicas(replicas.changes)
        # The record of one of them is not flushed: by default that waits for the segment's end.
        assert replicas.get(TP).log.recovery_point == 0
        assert changed.present(replicas.get) == []


def test_a_log_that_is_to_be_flushed_some_time_is_looked_at_until_it_is(cluster):
    hosted = lead(cluster)
    replicas = cluster[cluster.state(TP).leader].replicas
    timed = replace(hosted.config, log=replace(hosted.config.log, flush_ms=15_000))
    replicas.apply_topic_config(TP.topic, timed)
    cluster.loop.run_for(6000)
    assert hosted.log.recovery_point == 0
    cluster.loop.run_for(6000)
    assert hosted.log.recovery_point == 1
    assert ChangedReplicas(replicas.changes).present(replicas.get) == []


def test_what_nobody_has_told_of_a_log_is_found_within_a_round(cluster):
    hosted = lead(cluster)
    replicas = cluster[cluster.state(TP).leader].replicas
    changed = ChangedReplicas(replicas.changes)
    assert changed.present(replicas.get) == []
    hosted.log.segments.is_cut_short = True
    for _ in range(ROUND_MS // 1000):
        changed.look_around(replicas, 1000)
    assert changed.present(replicas.get) == [hosted]
    hosted.log.segments.is_cut_short = False
