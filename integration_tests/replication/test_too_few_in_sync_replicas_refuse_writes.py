"""R-REP6: below min.insync.replicas acks=all is refused, reads go on, and writes return with the
replicas.
"""

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)


def _produce(servers: str, value: bytes, *, retries: int = 100) -> str | None:
    """None when it was acknowledged by all, else the error's name."""
    outcomes: list[str | None] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": "false",
            "message.timeout.ms": 60_000,
            "retries": retries,
            "log_level": 0,
        }
    )
    producer.produce(
        "guarded",
        value,
        partition=0,
        on_delivery=lambda error, _m: outcomes.append(error.name() if error else None),
    )
    assert producer.flush(60) == 0
    return outcomes[0]


def _values(servers: str) -> list[bytes | None]:
    # To commit offsets it would wait for more replicas too.
    settings = {"group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    _, count = consumer.get_watermark_offsets(TopicPartition("guarded", 0), timeout=60)
    consumer.assign([TopicPartition("guarded", 0, OFFSET_BEGINNING)])
    values = [m.value() for m in consumer.consume(count, timeout=60)]
    consumer.close()
    return values


def test_writes_stop_below_the_minimum_and_reads_go_on(cluster):
    servers = cluster.bootstrap_servers
    create_topic(cluster, "guarded", config={"min.insync.replicas": "2"})
    client = admin(cluster)
    assert _produce(servers, b"with three") is None

    leader = leader_of(client, "guarded")
    followers = [broker for broker in (1, 2, 3) if broker != leader]
    for follower in followers:
        cluster.kill_broker(follower)
    # Until the leader knows that it is alone, it stores records that it can't acknowledge.
    wait_until(
        lambda: _produce(servers, b"early", retries=0) == "NOT_ENOUGH_REPLICAS",
        "the leader knows that it is alone",
    )
    stored = _values(servers)
    assert stored[0] == b"with three"
    assert _produce(servers, b"alone", retries=0) == "NOT_ENOUGH_REPLICAS"
    assert _values(servers) == stored

    cluster.start_broker(followers[0])
    wait_for_isr(client, "guarded", 2)
    assert _produce(servers, b"with two") is None
    assert _values(servers) == [*stored, b"with two"]
