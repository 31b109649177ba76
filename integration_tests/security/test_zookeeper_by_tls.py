"""Brokers, clients and commands reach a ZooKeeper that speaks TLS alone and asks for certificates;
who has the wrong ones is told so in one line."""

import contextlib
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from integration_tests.security.encrypted_zookeeper import EncryptedZooKeeper, encrypted_zookeeper
from integration_tests.security.secured_cluster import properties_file
from integration_tests.security.tls_files import TlsFiles
from integration_tests.support.brokers_by_hand import BrokersByHand, in_threads
from integration_tests.support.cluster_support import wait_until
from storage_engine.client import Admin, ConsumerConnector, NewTopic, Producer
from storage_engine.client.broker_discovery import encrypted_access
from storage_engine.core.errors import DeadlineExceededError
from storage_engine.core.settings.zookeeper_settings import ZooKeeperTls
from storage_engine.tools.cli import main
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.embedded import HOST
from storage_engine.zookeeper.live_brokers import live_addresses

RECORDS = 50


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory) -> TlsFiles:
    """Of an authority that nobody here trusts."""
    return TlsFiles(tmp_path_factory.mktemp("strangers"), "theirs")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory, files) -> Iterator[EncryptedZooKeeper]:
    certificate = files.issue("zookeeper.pem", "localhost")
    folder = tmp_path_factory.mktemp("zookeeper")
    with encrypted_zookeeper(folder, files, certificate) as server:
        yield server


@pytest.fixture(scope="module")
def settings(zookeeper, files) -> dict[str, str]:
    return zookeeper.settings(files.issue("own.pem", "headrace"))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, zookeeper, settings) -> Iterator[BrokersByHand]:
    by_hand = BrokersByHand(tmp_path_factory.mktemp("brokers"), zookeeper.connect, ["PLAINTEXT"])
    with contextlib.closing(by_hand):
        for broker in (1, 2):
            by_hand.start(broker, {**settings, "offsets.topic.replication.factor": "2"})
        yield by_hand


def test_brokers_and_clients_meet_there_also_after_it_was_down(brokers, zookeeper, settings, files):
    place = {"zookeeper.connect": zookeeper.connect, **settings}
    with Admin({"bootstrap.servers": brokers.bootstrap("PLAINTEXT")}) as admin:
        admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=2)])
        with Producer(place) as producer:
            for number in range(RECORDS):
                producer.send("t", b"%d" % number)
            producer.flush()
        group = {"group.id": "g", "auto.offset.reset": "earliest"}
        with ConsumerConnector({**place, **group}) as connector:
            (stream,) = connector.create_message_streams({"t": 1})["t"]
            seen = {next(stream).value for _ in range(RECORDS)}
        assert len(seen) == RECORDS
        zookeeper.stop()
        zookeeper.start(str(files.folder / "zookeeper.pem"))
        # Only through ZooKeeper a topic gets its leaders.
        admin.create_topics([NewTopic(name="after", partitions=4, replication_factor=2)])
        wait_until(lambda: set(_leaders(admin, "after")) == {1, 2}, "both brokers lead again")


def _leaders(admin: Admin, topic: str) -> list[int]:
    return [each.leader for each in admin.describe_topics([topic])[topic].partitions.values()]


def test_users_are_written_there_before_the_first_broker(zookeeper, settings, tmp_path, capsys):
    file = properties_file(tmp_path / "zookeeper.properties", {"broker.id": "1", **settings})
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    where = ["--zookeeper", f"{zookeeper.connect}/new", "--password-file", str(password)]
    command = ["users", "add", "broker", *where]
    assert main([*command, "--zk-tls-config-file", str(file)]) == 0
    assert "user 'broker' is set" in capsys.readouterr().out
    without = properties_file(tmp_path / "plain.properties", {"broker.id": "1"})
    assert main([*command, "--zk-tls-config-file", str(without)]) == 1
    assert "does not set zookeeper.ssl.client.enable=true" in capsys.readouterr().err


def looked_up(zookeeper: EncryptedZooKeeper, settings: dict[str, str], host: str = "localhost"):
    tls = ZooKeeperTls.of_texts(settings)
    where = ConnectString.parse(f"{host}:{zookeeper.port}/nothing")
    return live_addresses(where, 1_500, access=encrypted_access(tls))


def test_a_name_that_its_certificate_does_not_have_is_refused_unless_names_are_not_checked(
    zookeeper, settings
):
    assert looked_up(zookeeper, settings) == []
    with pytest.raises(DeadlineExceededError, match="IP address mismatch"):
        looked_up(zookeeper, settings, HOST)
    any_name = {"zookeeper.ssl.endpoint.identification.algorithm": ""}
    assert looked_up(zookeeper, {**settings, **any_name}, HOST) == []


def test_the_reason_why_there_is_no_connection_is_told(zookeeper, settings, files, strangers):
    key_store = "zookeeper.ssl.keystore.location"
    wrong = {
        "its certificate is not accepted": {
            "zookeeper.ssl.truststore.location": strangers.authority_file
        },
        "it refuses the certificate of zookeeper.ssl.keystore.location": {
            key_store: strangers.issue("stranger.pem", "headrace")
        },
        r"refuses the certificate of zookeeper.ssl.keystore.location \(.*certificate": {
            key_store: files.issue("expired.pem", "headrace", expired=True)
        },
        "certificate": {key_store: ""},
        "it speaks no version of zookeeper.ssl.enabled.protocols": {
            "zookeeper.ssl.enabled.protocols": "TLSv1.2"
        },
    }

    def is_told(reason: str, changed: dict[str, str]) -> None:
        with pytest.raises(DeadlineExceededError, match=reason):
            looked_up(zookeeper, {**settings, **changed})

    def is_silent() -> None:
        with pytest.raises(DeadlineExceededError, match="does not answer"):
            live_addresses(ConnectString.parse(zookeeper.connect), 1_500)

    in_threads(is_silent, *(partial(is_told, *each) for each in wrong.items()))


def test_a_broker_that_is_not_let_in_says_so_and_ends(zookeeper, settings, strangers, tmp_path):
    stranger = strangers.issue("broker.pem", "headrace")
    by_hand = BrokersByHand(tmp_path, zookeeper.connect, ["PLAINTEXT"])
    with contextlib.closing(by_hand):
        by_hand.start(
            7,
            {
                **settings,
                "zookeeper.ssl.keystore.location": stranger,
                "zookeeper.connection.timeout.ms": "1500",
            },
            is_waited_for=False,
        )
        wait_until(lambda: "no TLS with ZooKeeper" in by_hand.log(7), "the broker says why")
    assert f"no TLS with ZooKeeper at {zookeeper.connect}: it refuses the cert" in by_hand.log(7)


def test_the_session_of_a_killed_broker_is_closed_by_its_watcher(zookeeper, settings, tmp_path):
    """It lives a minute, and no other broker is there that could close it."""
    brokers = BrokersByHand(tmp_path, f"{zookeeper.connect}/watched", ["PLAINTEXT"])
    with contextlib.closing(brokers):
        brokers.start(1, {**settings, "zookeeper.session.timeout.ms": "60000"})
        brokers.stop(1, signum=signal.SIGKILL)
        wait_until(lambda: " was closed " in brokers.log(1), "its session is closed", timeout_s=45)
