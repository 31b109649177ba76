"""kafka-python."""

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from integration_tests.security.clients import cells
from integration_tests.security.clients.clients_cluster import TOPIC, Way

TIMEOUT_S = 30

SAYS = {
    cells.WRONG_SECRET: "authentication failed",
    cells.UNKNOWN_BROKER: "unable to get local issuer|self-signed certificate",
    cells.OTHER_HOST: "IP address mismatch",
    cells.EXPIRED_BROKER: "certificate has expired",
    cells.NO_CERTIFICATE: "alert (certificate required|handshake failure)",
    cells.UNKNOWN_CLIENT: "alert unknown ca",
    cells.EXPIRED_CLIENT: "alert certificate expired",
}


class _Shown(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def token(self) -> str:
        return self._text


def _settings(way: Way) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": way.servers,
        "security_protocol": way.protocol,
        "ssl_cafile": way.authority_file,
    }
    if way.certificate_file:
        settings |= {"ssl_certfile": way.certificate_file, "ssl_keyfile": way.certificate_file}
    if way.mechanism:
        settings["sasl_mechanism"] = way.mechanism
    if way.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _Shown(way.token)
    elif way.mechanism:
        settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
    return settings


def writes_and_reads(way: Way, value: bytes) -> bytes | None:
    """What is read where it has written."""
    with contextlib.closing(KafkaProducer(**_settings(way))) as producer:
        written = producer.send(TOPIC, value).get(TIMEOUT_S)
    consumer = KafkaConsumer(**_settings(way), consumer_timeout_ms=TIMEOUT_S * 1000)
    with contextlib.closing(consumer):
        place = TopicPartition(TOPIC, written.partition)
        consumer.assign([place])
        consumer.seek(place, written.offset)
        read: bytes | None = next(iter(consumer)).value
        return read


def writes_on(way: Way, *, for_s: float) -> int:
    """How many records are written in that time, each with its answer."""
    count, until = 0, time.monotonic() + for_s
    with contextlib.closing(KafkaProducer(**_settings(way))) as producer:
        while time.monotonic() < until:
            producer.send(TOPIC, b"%d" % count).get(TIMEOUT_S)
            count += 1
            time.sleep(0.01)
    return count


def is_told(way: Way) -> str:
    """Why it does not get in, as it logs. It tries on and on: a moment is enough, but on a machine
    that is busy."""
    with logged("kafka", logging.WARNING) as lines:
        for patience_ms in (300, 2_000, TIMEOUT_S * 1_000):
            with contextlib.suppress(KafkaError):
                KafkaAdminClient(**_settings(way), bootstrap_timeout_ms=patience_ms)
                return "it gets in"
            if any("Connection lost" in line or "Connection failed" in line for line in lines):
                break
    return "\n".join(lines)


@contextlib.contextmanager
def logged(name: str, level: int) -> Iterator[list[str]]:
    """Grows by what a library logs at that level."""
    lines: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    keeper = Keeper(level)
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(level)
    logger.addHandler(keeper)
    try:
        yield lines
    finally:
        logger.removeHandler(keeper)
        logger.setLevel(before)
