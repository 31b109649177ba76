"""R-REP6: below min.insync.replicas acks=all is refused, reads go on, and writes return with the
replicas.
"""

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    partition_metadata,
    wait_for_isr,
    wait_until,
)


def _produce(servers: str, value: bytes, *, acks: str, timeout_ms: int) -> str | None:
    """None when it was acknowledged, else the error's name."""
    outcomes: list[str | None] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": acks,
            "enable.idempotence": "false",
            "message.timeout.ms": timeout_ms,
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


def _values(servers: str, count: int) -> list[bytes | None]:
    # To commit offsets it would wait for more replicas too.
    settings = {"group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition("guarded", 0, OFFSET_BEGINNING)])
    values = [m.value() for m in consumer.consume(count, timeout=60)]
    consumer.close()
    return values


def test_writes_stop_below_the_minimum_and_reads_go_on(cluster):
    servers = cluster.bootstrap_servers
    create_topic(cluster, "guarded", config={"min.insync.replicas": "2"})
    client = admin(cluster)
    assert _produce(servers, b"with three", acks="all", timeout_ms=60_000) is None

    leader = leader_of(client, "guarded")
    followers = [broker for broker in (1, 2, 3) if broker != leader]
    for follower in followers:
        cluster.kill_broker(follower)
    wait_until(
        lambda: (m := partition_metadata(client, "guarded")) and m.isrs == [leader],
        "the ISR is the leader alone",
    )
    assert _produce(servers, b"alone", acks="all", timeout_ms=1000) == "_MSG_TIMED_OUT"
    assert _values(servers, 1) == [b"with three"]

    cluster.start_broker(followers[0])
    wait_for_isr(client, "guarded", 2)
    assert _produce(servers, b"with two", acks="all", timeout_ms=60_000) is None
    assert _values(servers, 2) == [b"with three", b"with two"]
