"""`headrace up --secure`: clients that we did not write take its files as they are."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from integration_tests.metrics.scraping import scrape
from integration_tests.support.cluster_support import FEW_GROUPS, QUICK_FAILOVER, wait_until
from storage_engine.client import Admin
from storage_engine.client.settings import read_settings_file
from storage_engine.core.errors import KafkaError as OurError
from storage_engine.tools.cli import main
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster

REQUEST = UpRequest(brokers=2, port=0, settings=(*FEW_GROUPS, *QUICK_FAILOVER), is_secure=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.running(tmp_path_factory.mktemp("secure"), REQUEST) as running:
        yield running


def settings(cluster: LocalCluster, user: str) -> dict[str, str]:
    """Of the file, as librdkafka's users read one."""
    lines = (cluster.directory / f"{user}.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def write(
    cluster: LocalCluster, user: str, topic: str, *, timeout_ms: int = 60_000, **more: str
) -> KafkaError | None:
    """One record; the error of its delivery."""
    errors: list[KafkaError | None] = []
    conf = {**settings(cluster, user), **{key.replace("_", "."): v for key, v in more.items()}}
    producer = Producer({**conf, "message.timeout.ms": timeout_ms, "log_level": 0})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(90)
    return errors[0]


def commanded(cluster: LocalCluster, command: str, *arguments: str) -> int:
    at = ["--bootstrap-server", cluster.bootstrap_servers]
    file = ["--command-config", str(cluster.directory / "admin.properties")]
    return main([command, *arguments, *at, *file])


def topics_seen(user: dict[str, str]) -> list[str] | None:
    """None: it could not log in. Any broker may be asked, and one learns of users after another."""
    try:
        with Admin(user) as admin:
            return admin.list_topics()
    except OurError:
        return None


def make_topic(cluster: LocalCluster, name: str) -> None:
    client = AdminClient({**settings(cluster, "admin"), "log_level": 0})
    client.create_topics([NewTopic(name, 1, 2)], operation_timeout=30)[name].result(60)


def test_secrets_are_for_their_owner_alone(cluster: LocalCluster) -> None:
    folder = cluster.directory
    security = cluster.state.security
    assert security is not None
    assert (security.protocol, security.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    secret = [folder / security.admin, folder / security.app, folder / "tls" / "ca.key"]
    secret += [folder / "tls" / "zookeeper.credentials", *folder.glob("tls/broker-*.pem")]
    secret += folder.glob("broker-*/server.properties")
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    assert stat.S_IMODE((folder / security.ca).stat().st_mode) & stat.S_IROTH
    passwords = {settings(cluster, user)["sasl.password"] for user in ("admin", "app")}
    for path in (folder / "cluster.json", *folder.glob("broker-*/broker.*")):
        assert not any(password in path.read_text() for password in passwords)


def test_a_user_may_do_what_it_is_allowed_to(cluster: LocalCluster) -> None:
    make_topic(cluster, "orders")
    assert write(cluster, "admin", "orders") is None
    refused = write(cluster, "app", "orders")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    rule = ["--allow", "User:app", "--producer", "--topic", "orders"]
    assert commanded(cluster, "acls", "add", *rule) == 0
    wait_until(lambda: write(cluster, "app", "orders") is None, "the user may write")
    assert commanded(cluster, "acls", "remove", "--principal", "User:app") == 0
    wait_until(lambda: write(cluster, "app", "orders") is not None, "the user may no longer write")


def test_brokers_tell_when_their_certificates_end(cluster: LocalCluster) -> None:
    days = scrape(cluster)["headrace_certificate_expires_days"]
    assert {each.broker for each in days} == {each.id for each in cluster.state.brokers}
    assert all(each.value > 300 for each in days)


def test_who_does_not_know_the_password_gets_nothing(cluster: LocalCluster) -> None:
    make_topic(cluster, "secrets")
    # It logs in again and again until the record is too old.
    error = write(cluster, "admin", "secrets", timeout_ms=5_000, sasl_password="wrong")
    assert error is not None
    wrong = {**read_settings_file(cluster.directory / "admin.properties"), "sasl.password": "wrong"}
    failed = "log-in as 'admin' by SCRAM-SHA-512 failed"
    with Admin(wrong) as admin, pytest.raises(OurError, match=failed):
        admin.list_topics()
    plain = {"bootstrap.servers": cluster.bootstrap_servers, "default.api.timeout.ms": 3000}
    with Admin(plain) as admin, pytest.raises(OurError):
        admin.list_topics()


def test_a_user_is_made_and_removed(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    assert commanded(cluster, "users", "add", "alice", "--password-file", str(password)) == 0
    as_alice = {
        **read_settings_file(cluster.directory / "app.properties"),
        "sasl.username": "alice",
        "sasl.password": "s3cret",
    }
    wait_until(lambda: topics_seen(as_alice) == [], "all brokers let her in")
    assert commanded(cluster, "users", "remove", "alice") == 0
    wait_until(lambda: topics_seen(as_alice) is None, "no broker lets her in")
    capsys.readouterr()
    assert commanded(cluster, "users", "remove", "alice") == 1
    assert "there is no user 'alice' to remove" in capsys.readouterr().err


def test_credentials_in_zookeeper_are_read_by_brokers_alone(cluster: LocalCluster) -> None:
    stranger = KazooClient(cluster.state.zookeeper)
    stranger.start(10)
    try:
        for path in ("/config/users", "/config/users/admin", "/config/users/broker"):
            with pytest.raises(NoAuthError):
                stranger.get(path)
        with pytest.raises(NoAuthError):
            stranger.create("/kafka-acl/Topic/*", b"{}")
    finally:
        stranger.stop()
        stranger.close()


def test_a_killed_broker_is_let_in_again_and_another_joins(cluster: LocalCluster) -> None:
    make_topic(cluster, "kept")
    assert write(cluster, "admin", "kept") is None
    cluster.kill_broker(1)
    cluster.start_broker(1)
    assert write(cluster, "admin", "kept") is None
    before = settings(cluster, "admin")["sasl.password"]
    cluster.up(UpRequest(brokers=3))
    assert settings(cluster, "admin")["sasl.password"] == before
    assert len(settings(cluster, "app")["bootstrap.servers"].split(",")) == 3
    with Admin(read_settings_file(cluster.directory / "admin.properties")) as admin:
        wait_until(
            lambda: [each.broker_id for each in admin.describe_cluster().brokers] == [1, 2, 3],
            "whom it asks knows the third",
        )


def test_an_open_cluster_is_not_secured_by_one_command(tmp_path: Path) -> None:
    with (
        LocalCluster.running(tmp_path, UpRequest(brokers=1, port=0)) as running,
        pytest.raises(CommandError, match="is not secured, and --secure makes new ones only"),
    ):
        running.up(UpRequest(is_secure=True))
