"""What a Python worker keeps is left out of the collections between tasks."""

import gc
import sys

import pytest

from connector import spark_workers
from connector.spark_workers import freeze_modules


class Freezes(list):
    """The number of modules at each freeze."""

    def freeze(self):
        self.append(len(sys.modules))


@pytest.fixture
def freezes(monkeypatch):
    """As if in a worker that was called for nothing before."""
    monkeypatch.setattr(spark_workers, "_frozen_modules", None)
    freezes = Freezes()
    monkeypatch.setattr(spark_workers, "gc", freezes)
    return freezes


def test_the_second_task_freezes_and_later_ones_do_not(freezes):
    freeze_modules()
    assert freezes == []
    for _ in range(3):
        freeze_modules()
    assert freezes == [len(sys.modules)]


def test_a_task_freezes_what_was_loaded_since(freezes, monkeypatch):
    freeze_modules()
    freeze_modules()
    monkeypatch.setitem(sys.modules, "loaded_by_the_user", gc)
    freeze_modules()
    assert [count - freezes[0] for count in freezes] == [0, 1]
