"""When a replica whose log a coordinator can't read is given up: after some tries to repair it."""

from types import SimpleNamespace
from typing import Any

import pytest

from storage_engine.broker.coordinators.state_load import (
    FIRST_PAUSE_MS,
    TRIES,
    DamagedLogError,
    LoadTroubles,
)
from storage_engine.core.errors import LogDirError, LogShortageError, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.log.support import ManualClock

TP = TopicPartition("__transaction_state", 0)


class Told:
    """The troubles of one partition, and the remedies that were tried."""

    def __init__(self) -> None:
        self.repairs: list[int] = []
        self.is_given_away = False
        self.partition: Any = SimpleNamespace(topic_partition=TP, leader=object())
        self.troubles = LoadTroubles(
            ManualClock(),
            repair=lambda _, offset: self.repairs.append(offset),
            is_sound_elsewhere=lambda _: True,
            give_away=lambda *_: setattr(self, "is_given_away", True),
        )

    def damaged(self, offset: int, times: int) -> int:
        """The last pause."""
        pauses = [
            self.troubles.failed(self.partition, DamagedLogError(offset, "a flipped bit"))
            for _ in range(times)
        ]
        return pauses[-1]

    def lacks_descriptors(self, times: int) -> None:
        for _ in range(times):
            self.troubles.failed(self.partition, OSError(24, "Too many open files"))

    def can_not_read(self, error: type[LogStorageError] = LogStorageError) -> int:
        return self.troubles.failed(self.partition, error("can't read 0.log"))


@pytest.fixture
def told() -> Told:
    return Told()


def test_it_is_given_up_after_some_tries_of_the_same_damage(told):
    told.damaged(7, TRIES - 1)
    assert (told.repairs, told.is_given_away) == ([7] * (TRIES - 1), False)
    told.damaged(7, 1)
    assert told.is_given_away


def test_other_failures_are_no_tries_to_repair(told):
    told.lacks_descriptors(2 * TRIES)
    assert told.damaged(7, 1) == FIRST_PAUSE_MS
    assert (told.repairs, told.is_given_away) == ([7], False)


def test_damage_elsewhere_is_tried_as_often(told):
    told.damaged(7, TRIES - 1)
    assert told.damaged(9, 1) == FIRST_PAUSE_MS
    told.damaged(9, TRIES - 2)
    assert not told.is_given_away


def test_what_was_under_another_leadership_does_not_count(told):
    """It came to an end during a pause, when there was no coordinator that could tell."""
    told.damaged(7, TRIES - 1)
    told.partition.leader = object()
    told.damaged(7, TRIES - 1)
    assert not told.is_given_away


def test_a_file_that_can_not_be_read_is_looked_for_anew_before_the_replica_is_given_up(told):
    """Compaction may have replaced the segment while it was read."""
    assert told.can_not_read() == FIRST_PAUSE_MS
    assert not told.is_given_away
    told.can_not_read()
    assert told.is_given_away


def test_only_storage_failures_in_a_row_and_under_one_leadership_give_a_replica_up(told):
    told.can_not_read()
    told.damaged(7, 1)
    told.can_not_read()
    told.lacks_descriptors(1)
    told.can_not_read()
    told.can_not_read(LogShortageError)
    told.can_not_read()
    told.troubles.loaded(TP)
    told.can_not_read()
    told.partition.leader = object()
    told.can_not_read()
    assert not told.is_given_away


def test_a_log_dir_that_failed_is_given_up_at_once(told):
    told.can_not_read(LogDirError)
    assert told.is_given_away
