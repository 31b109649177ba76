"""Fixtures of the log's tests."""

import os

import pytest

from storage_engine.log.files.disk import RealDisk


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
