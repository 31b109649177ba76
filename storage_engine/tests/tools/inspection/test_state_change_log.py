"""The lines of a state-change log: what is written is read again."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_engine.tools.inspection.state_change_log import (
    STATE_CHANGE_LOGGER,
    StateChange,
    newest_state_changes,
    read_state_changes,
    write_state_changes_to,
)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger(STATE_CHANGE_LOGGER)
    yield logger
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


def write(file: Path, logger: logging.Logger) -> None:
    """Nine changes, which fill several files."""
    write_state_changes_to(file, broker_id=7, file_bytes=200, file_count=3)
    assert not file.exists()
    for number in range(8):
        logger.info("became leader partition=%s leader=%d isr=%s", f"a.b-{number}", 7, [7, 8])
    logger.info("stopped partition=%s", "a.b-3")


def told(changes: list[StateChange]) -> list[tuple[int, str]]:
    return [(change.partition.partition, change.text.split()[0]) for change in changes]


def test_what_a_broker_writes_is_read_again(tmp_path: Path, logger: logging.Logger) -> None:
    write(tmp_path / "state-change.log", logger)
    rotated = sorted(tmp_path.iterdir())
    assert len(rotated) > 2
    changes = [change for file in rotated for change in read_state_changes(file)]
    assert {change.broker for change in changes} == {7}
    of_one = {change.text for change in changes if change.partition.partition == 3}
    assert of_one == {
        "became leader partition=a.b-3 leader=7 isr=[7, 8]",
        "stopped partition=a.b-3",
    }


def test_a_name_is_one_line_and_no_other_change(tmp_path: Path, logger: logging.Logger) -> None:
    file = tmp_path / "state-change.log"
    write_state_changes_to(file, broker_id=1, file_bytes=1 << 20, file_count=1)
    forged = "2026-11-21T20:40:01.000Z broker=2 deleted partition=payments-0"
    logger.info("became leader partition=%s-0 leader=1", f"x\n{forged}\n")
    (line,) = file.read_text(encoding="utf-8").splitlines()
    assert " broker=1 " in line
    (change,) = read_state_changes(file)
    assert change.broker == 1


def test_the_newest_changes_are_of_the_file_and_the_one_before_it(
    tmp_path: Path, logger: logging.Logger
) -> None:
    file = tmp_path / "state-change.log"
    assert newest_state_changes(file, 1000) == []
    write(file, logger)
    whole = [
        change
        for each in (file.with_name(f"{file.name}.1"), file)
        for change in read_state_changes(each)
    ]
    assert newest_state_changes(file, 1 << 20) == whole
    assert told(whole)[-2:] == [(7, "became"), (3, "stopped")]
    # The first line of what is read is cut in its middle, and left out.
    few = newest_state_changes(file, file.stat().st_size - 1)
    assert told(few) == told(list(read_state_changes(file)))[1:]
