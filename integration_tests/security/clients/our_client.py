"""Ours, of which messages also say what to do."""

import tempfile
from pathlib import Path

from integration_tests.security.clients import cells
from integration_tests.security.clients.clients_cluster import TOPIC, Way
from integration_tests.support.cluster_support import wait_until
from storage_engine.client import (
    Admin,
    AuthenticationError,
    Consumer,
    Producer,
    TopicPartition,
)

SAYS = {
    cells.WRONG_SECRET: "the log-in as '.*' by .* failed: .*; check the (user|token)",
    cells.UNKNOWN_BROKER: "give the authority that signed it with ssl.truststore.location",
    cells.OTHER_HOST: "connect by a name that is in the certificate",
    cells.EXPIRED_BROKER: "certificate has expired; renew it",
    cells.NO_CERTIFICATE: "certificate required; give one|handshake failure; it may ask",
    cells.UNKNOWN_CLIENT: "unknown ca; it does not know the authority",
    cells.EXPIRED_CLIENT: "certificate expired; renew the certificate",
}


def _settings(way: Way, folder: Path) -> dict[str, str]:
    settings = {
        "bootstrap.servers": way.servers,
        "security.protocol": way.protocol,
        "ssl.ca.location": way.authority_file,
    }
    if way.certificate_file:
        settings |= {
            "ssl.certificate.location": way.certificate_file,
            "ssl.key.location": way.certificate_file,
        }
    if way.mechanism:
        settings["sasl.mechanism"] = way.mechanism
    if way.mechanism == "OAUTHBEARER":
        token = folder / "token"
        token.write_text(way.token)
        settings["sasl.oauthbearer.token.endpoint.url"] = token.as_uri()
    elif way.mechanism:
        settings |= {"sasl.username": way.user, "sasl.password": way.password}
    return settings


def writes_and_reads(way: Way, value: bytes) -> bytes | None:
    """What is read where it has written."""
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(way, Path(folder))
        with Producer(settings) as producer:
            written = producer.send(TOPIC, value).result()
        with Consumer(settings) as consumer:
            place = TopicPartition(TOPIC, written.partition)
            consumer.assign([place])
            consumer.seek(place, written.offset)
            return wait_until(consumer.poll, "the record comes back")[0].value


def is_told(way: Way) -> str:
    """Why it does not get in."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Admin(_settings(way, Path(folder))) as admin:
                admin.list_topics()
        except AuthenticationError as error:
            return str(error)
    return "it gets in"
