"""The worker that sends the load."""

import pytest

from benchmarks.support.wire_frames import produce_frames
from benchmarks.support.wire_load import Endpoint, Worker, produce
from storage_engine.tools.errors import CommandError

FRAMES = produce_frames("topic", 1024, 8, seed=3)


def test_what_fails_in_a_worker_is_told_here():
    with Worker() as worker, pytest.raises(CommandError, match="failed"):
        worker.run(produce, Endpoint(1), FRAMES, 1, 1, 1)
