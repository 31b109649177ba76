"""Every test of the server runs on both event loops."""

from collections.abc import Iterator

import pytest

from storage_engine.tests.net.serving import LoopThread, running_loop


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_thread(request: pytest.FixtureRequest) -> Iterator[LoopThread]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    with running_loop(request.param) as thread:
        yield thread
