"""R-REP3, R-CTL2: what was acknowledged with acks=all is there after its leader was killed, in
order and once.
"""

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.steady_producer import SteadyProducer, check_kept
from storage_engine.tests.sampling import ALL_FAULTS, in_check

KILLS = 5 if ALL_FAULTS else 2


@in_check
def test_every_acknowledged_record_survives_kills_of_the_leader(cluster):
    topic = "led-by-others"
    create_topic(cluster, topic, config={"min.insync.replicas": "2"})
    client = admin(cluster)
    with SteadyProducer(cluster.bootstrap_servers, topic) as producer:
        for _ in range(KILLS):
            before = len(producer.acknowledged)
            wait_until(
                lambda before=before: len(producer.acknowledged) > before + 500,
                "records are acknowledged before the kill",
            )
            leader = leader_of(client, topic)
            cluster.kill_broker(leader)
            killed_at = len(producer.acknowledged)
            wait_until(
                lambda killed_at=killed_at: len(producer.acknowledged) > killed_at + 500,
                "records are acknowledged by the next leader",
            )
            assert cluster.start_broker(leader)
            wait_for_isr(client, topic, 3)
        check_kept(cluster.bootstrap_servers, topic, producer)
