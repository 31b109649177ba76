"""aiokafka."""

import asyncio
import logging
import ssl
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from integration_tests.security.clients import cells
from integration_tests.security.clients.clients_cluster import TOPIC, Way
from integration_tests.security.clients.kafka_python_client import logged

TIMEOUT_S = 30

SAYS = {
    cells.WRONG_SECRET: "authentication failed|invalid_token",
    cells.UNKNOWN_BROKER: "unable to get local issuer|self-signed certificate",
    cells.OTHER_HOST: "IP address mismatch",
    cells.EXPIRED_BROKER: "certificate has expired",
    cells.NO_CERTIFICATE: "alert (certificate required|handshake failure)",
    cells.UNKNOWN_CLIENT: "alert unknown ca",
    cells.EXPIRED_CLIENT: "alert certificate expired",
}


class _Shown(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


def _settings(way: Way) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=way.authority_file)
    if way.certificate_file:
        context.load_cert_chain(way.certificate_file)
    settings: dict[str, Any] = {
        "bootstrap_servers": way.servers,
        "security_protocol": way.protocol,
        "ssl_context": context,
    }
    if way.mechanism:
        settings["sasl_mechanism"] = way.mechanism
    if way.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _Shown(way.token)
    elif way.mechanism:
        settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
    return settings


def writes_and_reads(way: Way, value: bytes) -> bytes | None:
    """What is read where it has written."""

    async def run() -> bytes | None:
        async with AIOKafkaProducer(**_settings(way)) as producer:
            written = await producer.send_and_wait(TOPIC, value)
        place = TopicPartition(TOPIC, written.partition)
        consumer = AIOKafkaConsumer(**_settings(way))
        await consumer.start()
        try:
            consumer.assign([place])
            consumer.seek(place, written.offset)
            record = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            read: bytes | None = record.value
            return read
        finally:
            await consumer.stop()

    return asyncio.run(run())


def writes_on(way: Way, *, for_s: float) -> int:
    """How many records are written in that time, each with its answer."""

    async def run() -> int:
        count, until = 0, time.monotonic() + for_s
        async with AIOKafkaProducer(**_settings(way)) as producer:
            while time.monotonic() < until:
                await producer.send_and_wait(TOPIC, b"%d" % count)
                count += 1
                await asyncio.sleep(0.01)
        return count

    return asyncio.run(run())


def is_told(way: Way) -> str:
    """Why it does not get in: what it raises and logs."""

    async def run() -> str:
        producer = AIOKafkaProducer(**_settings(way))
        try:
            await producer.start()
        except KafkaError as error:
            return repr(error)
        finally:
            await producer.stop()
        return "it gets in"

    with logged("aiokafka", logging.DEBUG) as lines:
        lines.append(asyncio.run(run()))
    return "\n".join(lines)
