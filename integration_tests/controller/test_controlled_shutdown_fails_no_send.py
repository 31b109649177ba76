"""R-CTL9: leaders move before a broker stops; no send fails, nothing is lost or doubled."""

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.steady_producer import SteadyProducer


def test_a_rolling_restart_loses_and_fails_nothing(cluster):
    create_topic(cluster, "rolling", config={"min.insync.replicas": "2"})
    client = admin(cluster)
    with SteadyProducer(cluster.bootstrap_servers, "rolling") as producer:
        for broker in (1, 2, 3):
            before = len(producer.acknowledged)
            wait_until(
                lambda before=before: len(producer.acknowledged) > before + 200,
                "records are acknowledged",
            )
            cluster.stop_broker(broker)
            wait_until(
                lambda broker=broker: leader_of(client, "rolling") != broker, "another broker leads"
            )
            assert cluster.start_broker(broker)
            wait_for_isr(client, "rolling", 3)
        producer.finish()
    assert producer.failures == []
    offsets = [producer.acknowledged[n] for n in range(len(producer.acknowledged))]
    assert offsets == list(range(len(offsets)))
