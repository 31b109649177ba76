"""librdkafka logs in, without TLS too, while users, passwords and sessions change. Other clients,
and TLS: clients/test_clients_by_every_way.py."""

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from integration_tests.security.secured_cluster import PLAIN_SECRET, SECRET, secured_cluster
from integration_tests.support.cluster_support import wait_until
from storage_engine.tests.client.security.token_endpoint import Endpoint, running

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with secured_cluster(tmp_path_factory.mktemp("foreign")) as cluster:
        yield cluster


WAYS = {
    "SCRAM-SHA-256": lambda c: c.bob("SASL", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda c: c.bob("SASL"),
    "PLAIN": lambda c: c.config(
        "SASL", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password=PLAIN_SECRET
    ),
}


def failure_of(config) -> KafkaError:
    """What librdkafka is told."""
    errors: list[KafkaError] = []
    settings: dict[str, Any] = {**config, "error_cb": errors.append, "log_level": 0}
    client = AdminClient(settings)

    def told() -> KafkaError | None:
        client.poll(0.1)
        codes = (KafkaError._AUTHENTICATION, KafkaError._SSL)
        return next((each for each in errors if each.code() in codes), None)

    found = wait_until(told, "librdkafka is refused", timeout_s=TIMEOUT_S)
    assert found is not None
    return found


@pytest.mark.parametrize("way", WAYS)
def test_librdkafka_writes_and_reads_without_tls(cluster, way):
    config = WAYS[way](cluster)
    producer = Producer(config)
    value = way.encode()
    producer.produce("t", value)
    assert producer.flush(TIMEOUT_S) == 0
    group = {"group.id": way, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, **group})
    consumer.subscribe(["t"])
    found = wait_until(
        lambda: (record := consumer.poll(1)) is not None and record.value() == value,
        "the record comes back",
    )
    consumer.close()
    assert found


def test_librdkafka_shows_a_token_without_tls(cluster):
    cluster.write_token("carol")

    def token(_config):
        return cluster.token_file.read_text(), time.time() + 3600

    config: dict[str, Any] = dict(cluster.config("SASL", sasl_mechanism="OAUTHBEARER"))
    config["oauth_cb"] = token
    client = AdminClient(config)
    client.poll(0.2)
    assert client.list_topics(timeout=TIMEOUT_S).brokers


def test_librdkafka_fetches_its_token_from_the_identity_provider(cluster):
    endpoint = Endpoint()
    token = {"access_token": cluster.token("carol"), "token_type": "Bearer", "expires_in": 3600}
    endpoint.answer = 200, token
    with running(endpoint):
        config = cluster.config(
            "BOTH",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_method="oidc",
            sasl_oauthbearer_client_id="app",
            sasl_oauthbearer_client_secret="apps-secret",
            sasl_oauthbearer_token_endpoint_url=f"http://127.0.0.1:{endpoint.port}/token",
        )
        client = AdminClient(config)
        client.poll(0.2)
        assert client.list_topics(timeout=TIMEOUT_S).brokers
    assert "grant_type=client_credentials" in endpoint.asked[0][1]


def test_a_token_that_nobody_has_signed_is_refused(cluster):
    """librdkafka makes one, if it is told to."""
    failure_of(
        cluster.config(
            "BOTH",
            sasl_mechanism="OAUTHBEARER",
            enable_sasl_oauthbearer_unsecure_jwt="true",
            sasl_oauthbearer_config="principal=bob",
        )
    )
    assert "reason=its token is not valid (InvalidAlgorithmError)" in cluster.brokers.log(1)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_and_an_unknown_user_are_told_alike(cluster, mechanism):
    texts = set()
    for user in ("bob" if mechanism != "PLAIN" else "alice", "nobody"):
        failure = failure_of(
            cluster.config(
                "SASL", sasl_mechanism=mechanism, sasl_username=user, sasl_password="wrong"
            )
        )
        texts.add(failure.str().partition("SASL")[2].partition("(after")[0])
    assert len(texts) == 1
    assert mechanism in texts.pop()


def test_a_client_without_a_log_in_is_not_served(cluster):
    config = cluster.config("SASL") | {"security.protocol": "PLAINTEXT", "log_level": 0}
    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=3)


def test_librdkafka_logs_in_again_while_it_writes(cluster):
    """A session at this listener lasts two seconds."""
    errors: list[KafkaError] = []
    config = cluster.bob("BRIEF") | {"error_cb": errors.append}
    producer = Producer(config)
    failed: list[object] = []
    until = time.monotonic() + 5
    count = 0
    while time.monotonic() < until:
        producer.produce("t", b"%d" % count, on_delivery=lambda error, _: failed.append(error))
        producer.poll(0.02)
        count += 1
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == [None] * count
    assert errors == []


def test_users_come_and_go_while_the_broker_runs(cluster):
    admin = AdminClient({"bootstrap.servers": cluster.brokers.bootstrap("OPEN")})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)

    def change(alteration) -> None:
        for each in admin.alter_user_scram_credentials([alteration]).values():
            each.result(TIMEOUT_S)

    def by(password: str) -> dict[str, str]:
        return cluster.config(
            "SASL", sasl_mechanism="SCRAM-SHA-256", sasl_username="dave", sasl_password=password
        )

    def is_let_in(password: str) -> bool:
        return bool(AdminClient(by(password)).list_topics(timeout=TIMEOUT_S).brokers)

    change(UserScramCredentialUpsertion("dave", info, b"first"))
    assert is_let_in("first")
    change(UserScramCredentialUpsertion("dave", info, b"second"))
    failure_of(by("first"))
    assert is_let_in("second")
    change(UserScramCredentialDeletion("dave", ScramMechanism.SCRAM_SHA_256))
    failure_of(by("second"))
    described = admin.describe_user_scram_credentials().result(TIMEOUT_S)
    assert set(described) == {"bob"}


def test_the_users_of_the_file_come_and_go_with_it(cluster):
    path = Path(cluster.folder / "users.properties")
    before = path.read_text()
    path.write_text(before + "erin=erins-secret\n")
    config = cluster.config(
        "BOTH", sasl_mechanism="PLAIN", sasl_username="erin", sasl_password="erins-secret"
    )
    assert AdminClient(config).list_topics(timeout=TIMEOUT_S).brokers
    path.write_text(before)
    failure_of(config)


def test_no_secret_stands_in_what_the_broker_has_written(cluster):
    """After all that was tried above."""
    secrets = [SECRET, PLAIN_SECRET, "erins-secret", cluster.token_file.read_text()]
    folder = cluster.folder / "broker-1"
    written = [
        each for each in folder.rglob("*") if each.is_file() and each.suffix != ".properties"
    ]
    assert any(each.name == "broker.log" for each in written)
    for file in written:
        data = file.read_bytes()
        assert [text for text in secrets if text.encode() in data] == [], file
