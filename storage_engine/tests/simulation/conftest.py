"""Fixtures of the tests of the simulation."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from storage_engine.tools.commands.simulate import workers


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """A process for the seeds of a file: loading the simulation takes longer than most seeds."""
    with workers(1) as process:
        yield process
