"""The connections of one user end with the log-in."""

import pytest

from headrace_console.cluster.upstream import Upstream
from headrace_console.tests.console_support import NOWHERE
from storage_engine.client.cluster import Cluster


@pytest.mark.usefixtures("no_thread_is_left")
def test_what_was_in_use_when_a_log_in_ended_is_closed_when_it_is_given_back(monkeypatch) -> None:
    closed = []
    monkeypatch.setattr(Cluster, "close", lambda self: closed.append(self))
    upstream = Upstream(NOWHERE, None, user="alice")
    used: list[Cluster] = []

    def work(cluster: Cluster) -> None:
        used.append(cluster)
        upstream.close()

    upstream.call(work)
    assert closed == used
    assert not upstream._idle
