"""Who comes with a certificate is its subject, or what `ssl.principal.mapping.rules` makes of it:
rules of access are for that name and no other."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from integration_tests.security.secured_cluster import (
    SecuredCluster,
    secured_cluster,
    wait_until_in_force,
)

SETTINGS = {
    "authorizer.class.name": "AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.mtls.ssl.principal.mapping.rules": (
        "RULE:^.*CN=Mapped-([A-Za-z]+).*$/$1/L,DEFAULT"
    ),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[SecuredCluster]:
    folder = tmp_path_factory.mktemp("principals")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "others.pem"))
    trusted = {"listener.name.mtls.ssl.truststore.location": str(folder / "others.pem")}
    with secured_cluster(folder, more=SETTINGS | trusted) as made:
        for name, common_name in (
            ("plain", "app"),
            ("mapped", "Mapped-Carol"),
            ("other", "app2"),
        ):
            issued = authority.issue_cert(
                "127.0.0.1",
                common_name=common_name,
                organization_name="Example, Inc.",
                organization_unit_name="Data",
            )
            issued.private_key_and_cert_chain_pem.write_to_path(str(_file(made, name)))
        yield made


def _file(cluster: SecuredCluster, name: str) -> Path:
    return cluster.folder / f"{name}.pem"


def _subject(path: Path) -> str:
    """As OpenSSL writes it."""
    command = ["openssl", "x509", "-in", str(path), "-noout", "-subject", "-nameopt", "RFC2253"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return said.strip().removeprefix("subject=")


def _allow(cluster: SecuredCluster, principal: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": cluster.brokers.bootstrap("OPEN")})
    rule = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    (outcome,) = client.create_acls([rule]).values()
    outcome.result(30)
    wait_until_in_force(
        cluster.brokers.bootstrap("OPEN"),
        lambda rules: any(each.principal == principal for _, each in rules),
    )


def _produced(cluster: SecuredCluster, certificate: str, topic: str) -> KafkaError | None:
    outcomes: list[KafkaError | None] = []
    file = str(_file(cluster, certificate))
    config = cluster.config("MTLS", ssl_certificate_location=file, ssl_key_location=file)
    producer = Producer({**config, "message.timeout.ms": "20000", "log_level": "0"})
    producer.produce(topic, b"x", on_delivery=lambda error, _message: outcomes.append(error))
    producer.flush(60)
    return outcomes[0]


def _is_refused(error: KafkaError | None) -> bool:
    return error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_rule_is_for_the_subject_of_one_certificate(cluster):
    assert _is_refused(_produced(cluster, "plain", "t"))
    subject = _subject(_file(cluster, "plain"))
    assert subject.startswith("CN=app,")
    _allow(cluster, f"User:{subject}", "t")
    assert _produced(cluster, "plain", "t") is None
    assert _is_refused(_produced(cluster, "other", "t"))
    assert _is_refused(_produced(cluster, "mapped", "t"))


def test_a_subject_is_mapped_to_the_name_of_a_user(cluster):
    _allow(cluster, "User:carol", "t")
    assert _produced(cluster, "mapped", "t") is None
    assert _is_refused(_produced(cluster, "other", "t"))
    denied = cluster.brokers.log(1)
    assert f"principal=User:{_subject(_file(cluster, 'other'))}" in denied
