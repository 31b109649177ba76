"""What becomes of clients that we did not write when their user is removed, or their token ends,
while they are at work."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from integration_tests.security.secured_cluster import SecuredCluster, secured_cluster
from integration_tests.support.cluster_support import wait_until

TOKEN_S = 6
SETTINGS = {"sasl.oauthbearer.clock.skew.seconds": "1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path_factory.mktemp("sessions"), more=SETTINGS) as made:
        yield made


class Writer:
    """Writes all the time, and remembers what became of it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.errors: list[KafkaError] = []
        self.written = 0
        given = {"message.timeout.ms": 3_000, "reconnect.backoff.max.ms": 500, "log_level": 0}
        self._producer = Producer({**config, **given, "error_cb": self.errors.append})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(10)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._producer.produce("t", b"x", on_delivery=self._delivered)
            self._producer.poll(0.02)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        self.written += error is None

    def wait_until_it_writes(self) -> None:
        before = self.written
        wait_until(lambda: self.written > before + 20, "records are written", timeout_s=60)

    def wait_until_it_is_refused(self) -> None:
        refused = KafkaError._AUTHENTICATION
        wait_until(
            lambda: any(each.code() == refused for each in self.errors),
            "the client is told that it is not let in",
            timeout_s=60,
        )
        before = self.written
        time.sleep(1)
        assert self.written == before, "it writes on"


def test_a_user_that_is_removed_while_it_writes_is_out_and_in_again_when_it_is_back(cluster):
    """Sessions last two seconds at this listener."""
    cluster.add_user("frank", "pw-of-frank")
    config = cluster.config(
        "BRIEF",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="frank",
        sasl_password="pw-of-frank",
    )
    with Writer(config) as writer:
        writer.wait_until_it_writes()
        cluster.remove_user("frank")
        writer.wait_until_it_is_refused()
        cluster.add_user("frank", "pw-of-frank")
        writer.wait_until_it_writes()


def test_who_logs_in_again_with_a_token_that_has_ended_is_out(cluster):
    """A token ends the session of a connection, whatever the listener says of its length."""
    ended: list[str] = []

    def token(_config: str) -> tuple[str, float]:
        """The first token is good for a while; it is all that there ever is. librdkafka is told
        that it lasts, so that it shows it again."""
        if not ended:
            ended.append(cluster.token("grace", lifetime_s=TOKEN_S))
        return ended[0], time.time() + 3_600

    config: dict[str, Any] = cluster.config("SASL", sasl_mechanism="OAUTHBEARER")
    began = time.monotonic()
    with Writer({**config, "oauth_cb": token}) as writer:
        writer.wait_until_it_writes()
        writer.wait_until_it_is_refused()
    assert time.monotonic() - began > TOKEN_S
