"""R-REP8: a record outlives two leaders that die one after the other, with real processes.

s1 leads and acknowledges, and is killed before the others know the new high watermark (they hear of
it with the answer to their next fetch, for which they wait); s2 leads; s2 is killed; s3 leads. A
follower that cuts its log to its own, late high watermark when s2 becomes leader would lose the
record.
"""

from confluent_kafka import Producer

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.steady_producer import read_numbers
from storage_engine.tests.sampling import ALL_FAULTS

TOPIC = "kept"
ROUNDS = 3 if ALL_FAULTS else 1


def test_a_record_acknowledged_by_the_first_leader_is_there_when_the_third_leads(cluster):
    create_topic(cluster, TOPIC, config={"min.insync.replicas": "2"})
    client = admin(cluster)
    for number in range(ROUNDS):
        wait_for_isr(client, TOPIC, 3)
        s1 = leader_of(client, TOPIC)

        def kill_the_leader(error: object, _message: object, leader: int = s1) -> None:
            assert error is None
            cluster.kill_broker(leader)

        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0}
        )
        producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=kill_the_leader)
        assert producer.flush(60) == 0

        wait_until(lambda s1=s1: leader_of(client, TOPIC) != s1, "s2 leads")
        s2 = leader_of(client, TOPIC)
        wait_for_isr(client, TOPIC, 2)  # s3 has followed s2, and cut what it had to cut
        cluster.kill_broker(s2)
        wait_until(lambda gone={s1, s2}: leader_of(client, TOPIC) not in gone, "s3 leads")

        expected = [(n, n) for n in range(number + 1)]
        assert read_numbers(cluster.bootstrap_servers, TOPIC) == expected
        cluster.start_broker(s1)
        cluster.start_broker(s2)
    wait_for_isr(client, TOPIC, 3)
    assert read_numbers(cluster.bootstrap_servers, TOPIC) == expected
