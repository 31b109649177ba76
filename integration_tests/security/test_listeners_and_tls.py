"""Two brokers with three listeners: one for themselves with certificates on both sides, one for
clients with TLS, one plain. Clients that we did not write come by each, and know or refuse it."""

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer
from kazoo.client import KazooClient

from integration_tests.security.tls_files import TlsFiles
from integration_tests.support.cluster_support import make_topic, wait_until
from integration_tests.support.configured_brokers import (
    HOST,
    ConfiguredBrokers,
    configured_brokers,
)

BROKERS = (1, 2)
SECRET = "hush-hush"
"""Of no use, since no key is encrypted: it must appear nowhere."""
MAP = "INTERNAL:SSL,CLIENT:SSL,PLAINTEXT:PLAINTEXT"


class SecuredPair:
    """The brokers, and what clients need to know of them."""

    def __init__(self, brokers: ConfiguredBrokers, files: TlsFiles) -> None:
        self.brokers = brokers
        self.files = files
        self.ports = {
            (broker, name): brokers.free_port()
            for broker in BROKERS
            for name in ("INTERNAL", "CLIENT", "PLAINTEXT")
        }
        self.key_stores = {
            broker: files.issue(f"broker-{broker}.pem", "127.0.0.1", "localhost")
            for broker in BROKERS
        }

    def settings(self, broker: int, **more: str) -> dict[str, str]:
        names = ("INTERNAL", "CLIENT", "PLAINTEXT")
        return {
            "listeners": ",".join(f"{name}://{HOST}:{self.ports[broker, name]}" for name in names),
            "listener.security.protocol.map": MAP,
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.location": self.key_stores[broker],
            "ssl.truststore.location": self.files.authority_file,
            "listener.name.internal.ssl.client.auth": "required",
            "ssl.key.password": SECRET,
            **more,
        }

    def bootstrap(self, name: str) -> str:
        return ",".join(f"{HOST}:{self.ports[broker, name]}" for broker in BROKERS)

    def over_tls(self, **more: Any) -> dict[str, Any]:
        """librdkafka's settings."""
        return {
            "bootstrap.servers": self.bootstrap("CLIENT"),
            "security.protocol": "SSL",
            "ssl.ca.location": self.files.authority_file,
            **more,
        }


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPair]:
    folder = tmp_path_factory.mktemp("secured")
    with configured_brokers(folder) as brokers:
        made = SecuredPair(brokers, TlsFiles(folder))
        for broker in BROKERS:
            brokers.start(broker, made.settings(broker))
        admin = AdminClient(made.over_tls())
        wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "both are known")
        make_topic(admin, NewTopic("t", 4, 2))
        yield made


def produced(settings: dict[str, Any], count: int = 100) -> None:
    producer = Producer({**settings, "acks": "all", "delivery.timeout.ms": 90_000})
    failures: list[Any] = []
    for number in range(count):
        producer.produce("t", str(number), on_delivery=lambda error, _: failures.append(error))
    assert not producer.flush(90)
    assert failures == [None] * count


def problem_of(settings: dict[str, Any]) -> str:
    """What librdkafka tells of a connection that it can't make."""
    told: list[str] = []
    consumer = Consumer(
        {**settings, "group.id": "g", "error_cb": lambda error: told.append(str(error))}
    )
    with contextlib.closing(consumer):
        with pytest.raises(KafkaException):
            # Who is let in has its answer by then; why one is not comes below.
            consumer.list_topics(timeout=0.5)
        deadline = time.monotonic() + 30
        while not told and time.monotonic() < deadline:
            consumer.poll(0.5)
    return " ".join(told)


def test_records_go_through_tls_and_are_replicated_through_it(pair):
    produced(pair.over_tls())
    consumer = Consumer(pair.over_tls(**{"group.id": "tls", "auto.offset.reset": "earliest"}))
    with contextlib.closing(consumer):
        consumer.subscribe(["t"])
        read: list[bytes] = []
        deadline = time.monotonic() + 60
        while len(read) < 100 and time.monotonic() < deadline:
            read += [message.value() for message in consumer.consume(100, 1)]
    assert len(set(read)) >= 100
    described = AdminClient(pair.over_tls()).list_topics("t", timeout=10).topics["t"]
    assert all(sorted(p.isrs) == [1, 2] for p in described.partitions.values())


@pytest.mark.parametrize("name", ["CLIENT", "PLAINTEXT"])
def test_clients_get_the_addresses_of_the_listener_they_came_by(pair, name):
    settings = pair.over_tls()
    if name == "PLAINTEXT":
        settings = {"bootstrap.servers": pair.bootstrap(name)}
    brokers = AdminClient(settings).list_topics(timeout=10).brokers
    assert {b.id: b.port for b in brokers.values()} == {
        broker: pair.ports[broker, name] for broker in BROKERS
    }
    produced(settings, 10)


def test_kafka_python_speaks_tls_with_us(pair):
    settings = {
        "bootstrap_servers": pair.bootstrap("CLIENT").split(","),
        "security_protocol": "SSL",
        "ssl_cafile": pair.files.authority_file,
    }
    producer = KafkaProducer(**settings)
    assert producer.send("t", b"by kafka-python", partition=0).get(30).offset >= 0
    producer.close()
    consumer = KafkaConsumer(
        "t", **settings, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    assert any(record.value == b"by kafka-python" for record in consumer)
    consumer.close()


def test_the_znode_has_all_endpoints_as_kafka_writes_them(pair):
    client = KazooClient(pair.brokers.zookeeper_connect)
    client.start(20)
    try:
        data, _ = client.get("/brokers/ids/1")
    finally:
        client.stop()
        client.close()
    node = json.loads(data)
    assert node["version"] == 5
    assert node["listener_security_protocol_map"] == {
        "INTERNAL": "SSL",
        "CLIENT": "SSL",
        "PLAINTEXT": "PLAINTEXT",
    }
    assert node["endpoints"] == [
        f"{name}://{HOST}:{pair.ports[1, name]}" for name in ("INTERNAL", "CLIENT", "PLAINTEXT")
    ]
    assert (node["host"], node["port"]) == (HOST, pair.ports[1, "PLAINTEXT"])


# --- who must not come in ---


def test_a_client_that_trusts_others_refuses_us(pair, tmp_path):
    stranger = TlsFiles(tmp_path, "theirs")
    told = problem_of(pair.over_tls(**{"ssl.ca.location": stranger.authority_file}))
    assert "certificate verify failed" in told


def test_a_plain_client_at_a_tls_listener_is_told_apart(pair):
    assert problem_of({"bootstrap.servers": pair.bootstrap("CLIENT")})
    wait_until(
        lambda: "does not speak TLS" in "".join(pair.brokers.log_of(b) for b in BROKERS),
        "a broker says why",
    )


def test_nobody_comes_in_without_a_certificate_where_it_is_required(pair, tmp_path):
    internal = {"bootstrap.servers": pair.bootstrap("INTERNAL")}
    assert problem_of(pair.over_tls(**internal))
    stranger = TlsFiles(tmp_path, "theirs").issue("app.pem", "app@example.org")
    theirs = {"ssl.certificate.location": stranger, "ssl.key.location": stranger}
    assert problem_of(pair.over_tls(**internal, **theirs))
    own = pair.files.issue("app.pem", "app@example.org")
    ours = {"ssl.certificate.location": own, "ssl.key.location": own}
    produced(pair.over_tls(**internal, **ours), 10)


def test_a_listener_whose_name_or_time_is_wrong_is_refused_by_clients(pair):
    """On a third broker, which brokers reach by another listener."""
    files, ports = pair.files, [pair.brokers.free_port() for _ in range(3)]
    settings = {
        **pair.settings(1),
        "listeners": f"INTERNAL://{HOST}:{ports[0]},WRONG://{HOST}:{ports[1]},OLD://{HOST}:{ports[2]}",
        "listener.security.protocol.map": "INTERNAL:SSL,WRONG:SSL,OLD:SSL",
        "ssl.keystore.location": files.issue("broker-3.pem", "127.0.0.1"),
        "listener.name.wrong.ssl.keystore.location": files.issue("wrong.pem", "other.example"),
        "listener.name.old.ssl.keystore.location": files.issue("old.pem", HOST, expired=True),
    }
    pair.brokers.start(3, settings)
    try:
        wrong = problem_of(pair.over_tls(**{"bootstrap.servers": f"{HOST}:{ports[1]}"}))
        assert "certificate verify failed" in wrong
        old = problem_of(pair.over_tls(**{"bootstrap.servers": f"{HOST}:{ports[2]}"}))
        assert "certificate verify failed" in old
        assert "listener=OLD" in pair.brokers.log_of(3)
        assert "it has expired, clients that check it refuse this broker" in pair.brokers.log_of(3)
        unchecked = {
            "bootstrap.servers": f"{HOST}:{ports[1]}",
            "ssl.endpoint.identification.algorithm": "none",
        }
        assert AdminClient(pair.over_tls(**unchecked)).list_topics(timeout=10).brokers
    finally:
        pair.brokers.stop(3)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ssl.keystore.location": "/nowhere"}, "ssl.keystore.location=/nowhere: it can't be read"),
        ({"ssl.keystore.location": ""}, "TLS needs a certificate: set ssl.keystore.location"),
        ({"ssl.truststore.location": "/etc/hostname"}, "hostname: it is neither PEM nor PKCS12"),
        ({"listener.name.nowhere.ssl.client.auth": "none"}, "listeners has no NOWHERE"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "must be a comma-separated list of: TLSv1.2"),
    ],
    ids=["no file", "no setting", "no store", "no listener", "old version"],
)  # fmt: skip
def test_a_wrong_file_is_one_line_at_the_start(pair, changed, reason):
    told = pair.brokers.refusal(9, {**pair.settings(1), **changed})
    last = told.splitlines()[-1]
    assert last.startswith("headrace: ")
    assert reason in last
    assert "Traceback" not in told
    assert "PRIVATE KEY" not in told


def test_settings_are_described_without_their_secrets(pair):
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient(pair.over_tls())
    told = admin.describe_configs([resource])[resource].result(30)
    assert told["listener.name.internal.ssl.client.auth"].value == "required"
    assert told["ssl.keystore.location"].value == pair.key_stores[1]
    assert told["ssl.key.password"].is_sensitive
    assert told["ssl.key.password"].value is None
    assert SECRET not in "".join(pair.brokers.log_of(broker) for broker in BROKERS)


# --- renewal ---


def serial_of(port: int) -> int:
    """Of the certificate that a listener shows now."""
    from cryptography import x509

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((HOST, port), timeout=20) as plain,
        context.wrap_socket(plain) as sock,
    ):
        certificate = sock.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number


def alter(pair: SecuredPair, broker: int, key: str, value: str | None) -> None:
    operation = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    admin = AdminClient(pair.over_tls())
    admin.incremental_alter_configs([resource])[resource].result(30)


LOCATION = "listener.name.client.ssl.keystore.location"


def test_a_certificate_is_renewed_while_clients_go_on(pair):
    port = pair.ports[1, "CLIENT"]
    consumer = Consumer(pair.over_tls(**{"group.id": "renewal", "auto.offset.reset": "earliest"}))
    with contextlib.closing(consumer):
        consumer.subscribe(["t"])
        wait_until(lambda: consumer.poll(1.0), "a record")
        first = serial_of(port)
        path = pair.files.issue("client-1.pem", HOST)
        alter(pair, 1, LOCATION, path)
        wait_until(lambda: serial_of(port) != first, "another file")
        second = serial_of(port)
        pair.files.issue("client-1.pem", HOST)
        assert serial_of(port) == second
        alter(pair, 1, LOCATION, path)
        wait_until(lambda: serial_of(port) != second, "the same file with another content")
        produced(pair.over_tls())
        wait_until(lambda: consumer.poll(1.0), "a record by the connection from before")
    alter(pair, 1, LOCATION, None)
    wait_until(lambda: serial_of(port) == first, "the one of the broker's file again")
    assert "expires_in_days=" in pair.brokers.log_of(1)


def test_a_wrong_certificate_is_refused_and_the_old_one_stays(pair, tmp_path):
    first = serial_of(pair.ports[1, "CLIENT"])
    with pytest.raises(
        KafkaException, match=r"listener CLIENT: ssl\.keystore\.location=.*can't be"
    ):
        alter(pair, 1, LOCATION, str(tmp_path / "none.pem"))
    with pytest.raises(KafkaException, match="can't be set at run time"):
        alter(pair, 1, "listener.name.client.ssl.keystore.password", "hush")
    with pytest.raises(KafkaException, match="for all listeners"):
        alter(pair, 1, "ssl.keystore.location", "/x")
    assert serial_of(pair.ports[1, "CLIENT"]) == first
    assert "hush" not in "".join(pair.brokers.log_of(broker) for broker in BROKERS)
