"""The lines from a broker to its watcher."""

from storage_engine.broker.watcher import NO_SESSION
from storage_engine.broker.watcher.told import WatchedBroker, session_line, session_of
from storage_engine.core.security.security_protocol import Secret
from storage_engine.core.settings.zookeeper_settings import ZooKeeperTls
from storage_engine.zookeeper.session_credentials import SessionCredentials

PLAIN = WatchedBroker(
    broker_id=3, pid=411, connect="a:1,b:2/c", session_timeout_ms=6000, log_file=None
)


def test_a_broker_is_decoded_as_it_was_encoded() -> None:
    assert WatchedBroker.decode(PLAIN.encode()) == PLAIN
    assert PLAIN.encode().count(b"\n") == 1


def test_tls_keeps_its_passwords_and_lists() -> None:
    tls = ZooKeeperTls(
        keystore_location="/k",
        keystore_password=Secret("word"),
        truststore_password=Secret("other"),
        checks_host_name=False,
        protocols=("TLSv1.3",),
    )
    broker = WatchedBroker(
        broker_id=1, pid=2, connect="a:1", session_timeout_ms=1, log_file="/log", tls=tls
    )
    assert WatchedBroker.decode(broker.encode()) == broker
    assert "word" not in repr(broker)


def test_a_session_is_decoded_as_it_was_encoded() -> None:
    credentials = SessionCredentials(session_id=-5, password=bytes(16))
    assert session_of(session_line(credentials)) == credentials
    assert session_line(None) == NO_SESSION + b"\n"
