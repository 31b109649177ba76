"""`headrace up --secure`: clients that we did not write take its files as they are."""

import contextlib
import os
import shutil
import ssl
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.handlers.threading import KazooTimeoutError

from integration_tests.metrics.scraping import scrape
from integration_tests.security.clients.java_client import SOURCE as JAVA_PROGRAM
from integration_tests.support.cluster_support import FEW_GROUPS, QUICK_FAILOVER, wait_until
from integration_tests.support.java_clients import NEWEST, SHORT_LIVED, compiled
from storage_engine.client import Admin
from storage_engine.client.settings import read_settings_file
from storage_engine.core.errors import KafkaError as OurError
from storage_engine.tests.sampling import by_turns
from storage_engine.tools.cli import main
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.certificates import make_certificate
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.zookeeper_tls import load_zookeeper_tls
from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.kazoo_driver import make_client
from storage_engine.zookeeper.server.program import is_serving

REQUEST = UpRequest(brokers=2, port=0, settings=(*FEW_GROUPS, *QUICK_FAILOVER), is_secure=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    before = os.umask(0o022)
    try:
        with LocalCluster.running(tmp_path_factory.mktemp("secure"), REQUEST) as running:
            yield running
    finally:
        os.umask(before)


def settings(cluster: LocalCluster, user: str) -> dict[str, str]:
    """Of the file, as librdkafka's users read one."""
    lines = (cluster.directory / f"{user}.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def zookeeper_address(cluster: LocalCluster) -> tuple[str, int]:
    host, _, port = cluster.state.zookeeper.partition(":")
    return host, int(port)


def cluster_tls(cluster: LocalCluster) -> ssl.SSLContext | None:
    """That of the brokers."""
    return load_zookeeper_tls(cluster.directory / cluster.state.brokers[0].config)


@contextlib.contextmanager
def zookeeper_client(cluster: LocalCluster) -> Iterator[KazooClient]:
    """With the brokers' certificate, and without their password."""
    access = ZooKeeperAccess(tls=cluster_tls(cluster))
    client = make_client(cluster.state.zookeeper, session_timeout_ms=10_000, access=access)
    try:
        client.start(60)
        yield client
    finally:
        client.stop()
        client.close()


def owner(client: KazooClient, broker_id: int) -> int:
    """The session of a broker."""
    return int(client.exists(f"/brokers/ids/{broker_id}").ephemeralOwner)


def password_of(session_id: int) -> bytes:
    """ZooKeeper's: java.util.Random(session_id ^ 0xB3415C00).nextBytes(16)."""
    mask = 2**48 - 1
    seed, result = (session_id ^ 0xB3415C00 ^ 0x5DEECE66D) & mask, b""
    while len(result) < 16:
        seed = (seed * 0x5DEECE66D + 0xB) & mask
        result += (seed >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return result


def takes_over(cluster: LocalCluster, session: int, tls: ssl.SSLContext | None) -> bool:
    """Whether somebody who knows the session's id gets it, and so could close it."""
    client = make_client(
        cluster.state.zookeeper,
        session_timeout_ms=10_000,
        client_id=(session, password_of(session)),
        access=ZooKeeperAccess(tls=tls),
    )
    try:
        # An attempt takes some milliseconds; several are made.
        client.start(1)
    except KazooTimeoutError:
        return False
    finally:
        client.stop()
        client.close()
    return True


def answers(cluster: LocalCluster, tls: ssl.SSLContext | None) -> bool:
    return is_serving(*zookeeper_address(cluster), tls)


def listening_ports(pid: int) -> set[int]:
    """The TCP ports on which a process takes connections."""
    own = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {
        int(row[1].rpartition(":")[2], 16)
        for row in rows
        if row[3] == "0A" and f"socket:[{row[9]}]" in own
    }


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


def test_passwords_are_in_no_log(cluster: LocalCluster) -> None:
    folder = cluster.directory
    security = cluster.state.security
    assert security is not None
    assert (security.protocol, security.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
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


def test_javas_clients_take_their_file_as_it_is(cluster: LocalCluster, tmp_path: Path) -> None:
    make_topic(cluster, "t")
    path = compiled(JAVA_PROGRAM, NEWEST, tmp_path)
    files = [str(cluster.directory / f"{user}-java.properties") for user in ("admin", "app")]
    done = subprocess.run(
        ["java", *SHORT_LIVED, "-cp", path, "JavaLogIns", "0", *files],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert said[files[0]] == "written and read"
    assert said[files[1]].startswith("TopicAuthorizationException")


def test_brokers_tell_when_their_certificates_end(cluster: LocalCluster) -> None:
    days = scrape(cluster)["headrace_certificate_expires_days"]
    assert {each.broker for each in days} == {each.id for each in cluster.state.brokers}
    assert all(each.value > 300 for each in days)


def test_who_does_not_know_the_password_gets_nothing(cluster: LocalCluster) -> None:
    make_topic(cluster, "secrets")
    # It logs in again and again until the record is too old.
    error = write(cluster, "admin", "secrets", timeout_ms=2_000, sasl_password="wrong")
    assert error is not None
    wrong = {**read_settings_file(cluster.directory / "admin.properties"), "sasl.password": "wrong"}
    failed = "log-in as 'admin' by SCRAM-SHA-512 failed"
    with Admin(wrong) as admin, pytest.raises(OurError, match=failed):
        admin.list_topics()
    plain = {"bootstrap.servers": cluster.bootstrap_servers, "default.api.timeout.ms": 1000}
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
    """Not by one who has the certificate, but not the brokers' password."""
    with zookeeper_client(cluster) as stranger:
        for path in ("/config/users", "/config/users/admin", "/config/users/broker"):
            with pytest.raises(NoAuthError):
                stranger.get(path)
        with pytest.raises(NoAuthError):
            stranger.create("/kafka-acl/Topic/*", b"{}")


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


def test_zookeeper_listens_on_its_encrypted_port_alone(cluster: LocalCluster) -> None:
    state = cluster.state
    assert state.zookeeper_pid is not None
    assert listening_ports(state.zookeeper_pid) == {zookeeper_address(cluster)[1]}


def test_strangers_end_no_sessions(cluster: LocalCluster, tmp_path: Path) -> None:
    """Nor do clients with a certificate that the brokers' listeners trust."""
    for name in ("ca.pem", "ca.key"):
        shutil.copy(cluster.directory / "tls" / name, tmp_path)
    make_certificate(tmp_path, "client.pem", "127.0.0.1")
    trusting = {"cafile": cluster.directory / "tls" / "zookeeper" / "ca.pem"}
    without, of_the_listeners = (ssl.create_default_context(**trusting) for _ in range(2))
    of_the_listeners.load_cert_chain(tmp_path / "client.pem")
    with zookeeper_client(cluster) as own:
        before = {id: owner(own, id) for id in (1, 2)}
        assert answers(cluster, cluster_tls(cluster))
        ways = (None, without, of_the_listeners)
        for tls, session in by_turns(ways, tuple(before.values())):
            assert not takes_over(cluster, session, tls)
        for tls in ways:
            assert not answers(cluster, tls)
        assert {id: owner(own, id) for id in (1, 2)} == before


def test_all_goes_on_after_it_was_down(cluster: LocalCluster) -> None:
    make_topic(cluster, "lasting")
    cluster.down()
    cluster.up()
    assert write(cluster, "admin", "lasting") is None
    assert not answers(cluster, None)
    warned = "shows ZooKeeper no certificate"
    for entry in cluster.state.brokers:
        assert warned not in (cluster.directory / entry.log_file).read_text()


def test_all_files_are_for_their_owner_alone(cluster: LocalCluster) -> None:
    """After all of the above."""
    make_topic(cluster, "used")
    assert write(cluster, "admin", "used") is None
    rule = ["--allow", "User:app", "--producer", "--topic", "used"]
    assert commanded(cluster, "acls", "add", *rule) == 0
    shared = {
        str(path): oct(mode)
        for path in (cluster.directory, *cluster.directory.rglob("*"))
        if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077
    }
    assert list(cluster.directory.rglob("used-*/*.log"))
    assert shared == {}


def test_an_open_cluster_is_not_secured_by_one_command(tmp_path: Path) -> None:
    with (
        LocalCluster.running(tmp_path, UpRequest(brokers=1, port=0)) as running,
        pytest.raises(CommandError, match="is not secured, and --secure makes new ones only"),
    ):
        running.up(UpRequest(is_secure=True))
