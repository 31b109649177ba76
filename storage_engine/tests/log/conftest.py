"""Fixtures of the log's tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_engine.log.files.disk import RealDisk
from storage_engine.log.partition_log import PartitionLog
from storage_engine.tests.log.support import open_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    """An empty log of small segments."""
    log = open_log(tmp_path)
    yield log
    log.close_without_flush()


@pytest.fixture(autouse=True)
def no_waiting_for_the_medium(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs of the real disk return at once, since no test of this folder can take its power; the
    tests that take the power of a disk have a simulated one. Where the machine's disk is busy, the
    thousands of syncs of the tests that fail each call in turn took minutes.
    """

    def sync(_disk: RealDisk, descriptor: int) -> None:
        os.fstat(descriptor)  # a closed one is an error all the same

    monkeypatch.setattr(RealDisk, "sync", sync)
    monkeypatch.setattr(RealDisk, "sync_names", sync)
