"""librdkafka, by Confluent's client for Python."""

import contextlib
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from integration_tests.security.clients import cells
from integration_tests.security.clients.clients_cluster import TOPIC, Way
from integration_tests.support.cluster_support import wait_until

TIMEOUT_S = 30

SAYS = {
    cells.WRONG_SECRET: "authentication failed",
    cells.UNKNOWN_BROKER: "certificate verify failed",
    cells.OTHER_HOST: "certificate verify failed",
    cells.EXPIRED_BROKER: "certificate verify failed",
    cells.NO_CERTIFICATE: "alert (certificate required|handshake failure)",
    cells.UNKNOWN_CLIENT: "alert unknown ca",
    cells.EXPIRED_CLIENT: "alert certificate expired",
}


def settings_of(way: Way) -> dict[str, Any]:
    """In librdkafka's names, but for the token."""
    settings = {
        "bootstrap.servers": way.servers,
        "security.protocol": way.protocol,
        "ssl.ca.location": way.authority_file,
        "log_level": 0,
    }
    if way.certificate_file:
        settings |= {
            "ssl.certificate.location": way.certificate_file,
            "ssl.key.location": way.certificate_file,
        }
    if way.mechanism:
        settings["sasl.mechanism"] = way.mechanism
        if way.mechanism != "OAUTHBEARER":
            settings |= {"sasl.username": way.user, "sasl.password": way.password}
    return settings


def _client_settings(way: Way) -> dict[str, Any]:
    settings = settings_of(way)
    if way.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (way.token, time.time() + 3600)
    return settings


def writes_and_reads(way: Way, value: bytes) -> bytes | None:
    """What is read where it has written."""
    producer = Producer(_client_settings(way))
    places: list[Any] = []
    producer.produce(TOPIC, value, on_delivery=lambda error, record: places.append(error or record))
    assert producer.flush(TIMEOUT_S) == 0
    (place,) = places
    consumer = Consumer({**_client_settings(way), "group.id": "g"})
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(TOPIC, place.partition(), place.offset())])
        record = wait_until(lambda: consumer.poll(1), "the record comes back")
        read: bytes | None = record.value()
        return read


def is_told(way: Way) -> str:
    """Why it does not get in."""
    errors: list[KafkaError] = []
    producer = Producer({**_client_settings(way), "error_cb": errors.append})

    def told() -> str:
        producer.poll(0.1)
        return " ".join(
            each.str() for each in errors if each.code() != KafkaError._ALL_BROKERS_DOWN
        )

    return wait_until(told, "librdkafka is refused", timeout_s=TIMEOUT_S)
