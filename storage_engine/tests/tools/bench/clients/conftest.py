"""A peer that acknowledges what it is sent and keeps nothing."""

import pytest

from benchmarks.clients.comparison import running_acknowledger


@pytest.fixture(scope="module")
def acknowledger(tmp_path_factory):
    with running_acknowledger(tmp_path_factory.mktemp("acknowledger")) as servers:
        yield servers
