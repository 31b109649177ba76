"""R-CLI2: a member of ours that is paused beyond its session timeout, while the coordinator is
killed besides, comes back to a group that has given its partitions to another: what it commits late
is refused, it reads nothing of what it had, and goes on with what it is given anew."""

import os
import signal

from confluent_kafka import Producer

from integration_tests.groups.group_members import poll_until, share
from integration_tests.groups.our_member import OurMember
from integration_tests.groups.told_member import ToldMember
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from storage_engine.client import TopicPartition
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tools.local.local_cluster import LocalCluster

OFFSETS = "__consumer_offsets"
PARTITIONS = 4
SESSION_MS = 3_000
LATE, NEWER = 1, 2
"""Offsets: what the paused one commits, and what its heir has committed by then."""


def write(cluster: LocalCluster, topic: str) -> None:
    """So many records in each partition as the heir commits."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(NEWER * PARTITIONS):
        producer.produce(topic, b"x", partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def test_a_late_commit_is_refused_and_the_member_goes_on_with_what_it_is_given(cluster):
    topic = "paused"
    create_topic(cluster, topic, partitions=PARTITIONS)
    servers = cluster.bootstrap_servers
    every = {TopicPartition(topic, number) for number in range(PARTITIONS)}
    heir = OurMember(servers, topic, topic)
    with ToldMember(servers, topic, topic, SESSION_MS) as paused:
        poll_until([heir, paused], lambda: share([heir, paused], PARTITIONS), "both have a part")
        partition = state_partition(topic, COORDINATOR_PARTITIONS)
        victim = leader_of(admin(cluster), OFFSETS, partition)
        os.kill(paused.process.pid, signal.SIGSTOP)
        cluster.kill_broker(victim)
        try:
            # What it is to do first when it goes on, whatever its other threads hear meanwhile.
            paused.tell(f"commit {LATE}")
            poll_until(
                [heir], lambda: heir.owned() == set(range(PARTITIONS)), "the other owns everything"
            )
            write(cluster, topic)
            seen: set[tuple[int, int]] = set()

            def all_read() -> bool:
                seen.update(heir.poll())
                return len(seen) == NEWER * PARTITIONS

            wait_until(all_read, "the other reads everything")
            heir.consumer.commit(dict.fromkeys(every, NEWER))
            os.kill(paused.process.pid, signal.SIGCONT)
            assert paused.answer()["refused"], "the late commit was taken"
            assert heir.consumer.committed(every) == dict.fromkeys(every, NEWER)
            paused.heard.clear()
            read = paused.poll()
            # Lost, not revoked: another had them already. What is given anew comes afterwards.
            assert paused.heard[:1] == ["lost"]
            assert "assigned" in paused.heard or not (read or paused.owned())
            both = [heir, paused]
            _, later = poll_until(both, lambda: share(both, PARTITIONS), "both have a part again")
            assert paused.heard[-1] == "assigned"
            assert read + later == [], "what the other has committed is not read again"

            def goes_on() -> bool:
                # Again where a busy machine has cost it another session.
                poll_until(both, lambda: share(both, PARTITIONS), "both have a part")
                paused.tell(f"commit {LATE}")
                return paused.answer()["refused"] is None

            wait_until(goes_on, "what it commits as its own is taken")
            given = {TopicPartition(topic, number) for number in paused.owned()}
            assert heir.consumer.committed(given) == dict.fromkeys(given, LATE)
        finally:
            os.kill(paused.process.pid, signal.SIGCONT)
            cluster.start_broker(victim)
            wait_for_isr(admin(cluster), OFFSETS, 3, partition)
    heir.close()
