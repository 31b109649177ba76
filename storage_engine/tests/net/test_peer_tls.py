"""Requests between brokers over TLS: certificates on both sides, and each refusal in words."""

from functools import partial

import pytest

from storage_engine.net.tls.contexts import ListenerTls
from storage_engine.tests.net.serving import serving
from storage_engine.tests.net.test_peer import Asker, answer, fetching
from storage_engine.tests.net.tls.certificates import (
    AUTHORITY,
    BROKER,
    EXPIRED,
    STRANGER,
    profile_of,
)
from storage_engine.tests.net.tls.tls_clients import serving_tls


class TlsAsker(Asker):
    def __init__(self, thread) -> None:
        super().__init__(thread)
        self.tls = ListenerTls("SSL", profile_of())
        self.transport.tls = lambda: self.tls.client


@pytest.fixture
def asker(loop_thread):
    asker = TlsAsker(loop_thread)
    yield asker
    asker.close()


def mutual(**more):
    return ListenerTls("SSL", profile_of(client_auth="required", **more))


def test_brokers_show_their_certificates_to_each_other(loop_thread, asker):
    with serving_tls(loop_thread, fetching, mutual()) as server:
        asker.ask(server.port, *range(50))
        asker.wait_for(50)
        assert asker.watermarks == list(range(50))


def test_large_answers_arrive_whole(loop_thread, asker):
    records = bytes(range(256)) * 4096 * 5

    def large(connection, frame):
        connection.begin().respond(answer(bytes(frame), records))

    with serving_tls(loop_thread, large, mutual()) as server:
        asker.ask(server.port, 1, 2)
        asker.wait_for(2)
        for reply in asker.replies:
            assert bytes(reply.partitions[0].records) == records


@pytest.mark.parametrize(
    ("issued", "reason"),
    [
        (STRANGER.issue_cert("127.0.0.1"), "certificate is not accepted: "),
        (AUTHORITY.issue_cert("other.example"), "IP address mismatch"),
        (AUTHORITY.issue_cert("127.0.0.1", not_after=EXPIRED), "certificate has expired"),
    ],
    ids=["of a stranger", "of another host", "expired"],
)
def test_a_broker_that_is_not_known_is_not_asked(loop_thread, asker, issued, reason):
    with serving_tls(loop_thread, fetching, ListenerTls("SSL", profile_of(issued))) as server:
        asker.ask(server.port, 1)
        asker.wait_for(1)
        assert reason in asker.failures[0].reason


def test_names_are_not_checked_where_the_setting_says_so(loop_thread, asker):
    asker.tls = ListenerTls("SSL", profile_of(checks_host_name=False))
    other = AUTHORITY.issue_cert("other.example")
    with serving_tls(loop_thread, fetching, ListenerTls("SSL", profile_of(other))) as server:
        asker.ask(server.port, 1)
        asker.wait_for(1)
        assert asker.watermarks == [1]


def test_a_broker_whose_certificate_is_refused_is_told(loop_thread, asker):
    asker.tls = ListenerTls("SSL", profile_of(STRANGER.issue_cert("127.0.0.1")))
    with serving_tls(loop_thread, fetching, mutual()) as server:
        asker.ask(server.port, 1)
        asker.wait_for(1)
        assert "alert unknown ca" in asker.failures[0].reason


def test_a_broker_that_speaks_no_tls_is_told_apart(loop_thread, asker):
    with serving(loop_thread, fetching) as server:
        asker.ask(server.port, 1)
        asker.wait_for(1)
        assert "127.0.0.1" in asker.failures[0].reason


def test_a_host_that_no_certificate_can_have_is_a_failure_in_words(loop_thread, asker):
    asker.ask(9, 1, host=".example")
    asker.wait_for(1)
    assert asker.failures[0].reason.endswith("that is no host name")


def test_a_renewed_certificate_is_shown_by_the_next_connection(loop_thread, asker):
    """First one that the other side does not take, then a good one."""
    bad = profile_of(STRANGER.issue_cert("127.0.0.1"))
    loop_thread.call(partial(asker.tls.renew, bad))
    with serving_tls(loop_thread, fetching, mutual()) as server:
        asker.ask(server.port, 1)
        asker.wait_for(1)
        loop_thread.call(partial(asker.tls.renew, profile_of(BROKER)))
        asker.ask(server.port, 2)
        asker.wait_for(2)
        assert asker.watermarks == [2]
