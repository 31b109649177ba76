"""`headrace zookeeper`: three servers that speak TLS alone go on when their leader is killed, and
brokers keep their sessions."""

import ssl

import pytest

from integration_tests.controller.zookeeper_ensemble import HOST, Ensemble, running_ensemble
from integration_tests.security.tls_files import TlsFiles
from integration_tests.support.brokers_by_hand import BrokersByHand
from integration_tests.support.cluster_support import wait_until
from integration_tests.support.command_line import fail
from storage_engine.client import Admin, NewTopic
from storage_engine.net.tls.stores import KeyStoreSettings, load_key_store
from storage_engine.zookeeper.server.config import ServerTls
from storage_engine.zookeeper.server.program import is_serving

SESSION = {"zookeeper.session.timeout.ms": "20000"}
"""Longer than an election of ZooKeeper takes on a busy machine."""


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls(files) -> ServerTls:
    store = load_key_store(KeyStoreSettings(location=files.issue("issued.pem", "localhost", HOST)))
    own = files.folder / "server.pem"
    own.touch(mode=0o600)
    # Java reads keys in PKCS#8 alone.
    own.write_bytes(store.chain_pem + store.key_pem)
    return ServerTls(keystore=own, truststore=files.authority_file)


def test_brokers_keep_their_sessions_when_the_leader_of_zookeeper_is_killed(tmp_path, files, tls):
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": files.issue("broker.pem", HOST),
        "zookeeper.ssl.truststore.location": files.authority_file,
        **SESSION,
    }
    with running_ensemble(tmp_path / "ensemble", tls=tls) as ensemble:
        brokers = BrokersByHand(tmp_path, ensemble.connect, ["PLAINTEXT"])
        try:
            for broker in (1, 2):
                brokers.start(broker, settings)
            with Admin({"bootstrap.servers": brokers.bootstrap("PLAINTEXT")}) as admin:
                admin.create_topics([NewTopic(name="before", partitions=2, replication_factor=2)])
                old = ensemble.leader()
                ensemble.kill(old)
                folder = ensemble.directory / f"zookeeper-{(other := 1 + old % 3)}"
                assert fail("zookeeper", *ensemble.arguments(other)) == (
                    f"a ZooKeeper runs already on {folder}: stop it first, or give another --dir"
                )
                new = ensemble.leader()
                assert new != old
                admin.create_topics([NewTopic(name="after", partitions=2, replication_factor=2)])
                assert {"before", "after"} <= set(admin.list_topics())
                ensemble.start(old)
                wait_until(lambda: ensemble.mode(old) == "follower", "the killed one is back")
            for broker in (1, 2):
                log = brokers.log(broker)
                assert log.count(f"registered broker={broker} ") == 1, log
        finally:
            brokers.close()
        _nobody_else_is_let_in(ensemble, files)
        for server in ensemble.ids:
            assert ensemble.terminate(server) in (0, 143), ensemble.output(server).read_text()


def _nobody_else_is_let_in(ensemble: Ensemble, files: TlsFiles) -> None:
    port = ensemble.client_ports[1]
    assert not is_serving(HOST, port)
    without_certificate = ssl.create_default_context(cafile=files.authority_file)
    without_certificate.check_hostname = False
    assert not is_serving(HOST, port, without_certificate)
