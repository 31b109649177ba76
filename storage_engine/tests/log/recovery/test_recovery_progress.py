"""A long recovery says how far it is, and whoever waits for it sees that."""

import logging
import socket
import threading

import pytest

from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.recovery.recovery import MARK, RecoveryProgress, bytes_to_check
from storage_engine.tests.log.support import (
    SMALL,
    TP,
    ManualClock,
    fill,
    loaded_log_manager,
    new_log_manager,
    open_log,
)
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_file import BrokerEntry
from storage_engine.tools.local.serving import wait_until_serving


class RunningClock(ManualClock):
    """A second passes with every look."""

    def monotonic_ms(self) -> int:
        self.looks = getattr(self, "looks", 0) + 1
        return self.looks * 1000


def test_what_a_recovery_will_go_through_is_known_before(tmp_path):
    log = open_log(tmp_path)
    fill(log, 60)
    log.close()
    sizes = [segment.size for segment in log.segments]
    assert len(sizes) > 3
    assert bytes_to_check(REAL_DISK, [(log.directory, 0)]) == sum(sizes)
    third = log.segments.all[2].base_offset
    assert bytes_to_check(REAL_DISK, [(log.directory, third + 1)]) == sum(sizes[2:])
    recovered = open_log(tmp_path, recovery_point=third + 1)
    assert recovered.recovered_bytes == sum(sizes[2:])
    recovered.close()


def test_a_long_recovery_tells_how_far_it_is(tmp_path, caplog):
    clock = RunningClock()
    manager = loaded_log_manager([tmp_path], clock=clock)
    fill(manager.get_or_create(TP), 60)
    manager.abandon()
    manager = new_log_manager([tmp_path], SMALL, broker_id=1, clock=clock)
    with caplog.at_level(logging.INFO):
        manager.load()
    manager.close()
    lines = [m for m in caplog.messages if m.startswith(MARK)]
    assert len(lines) >= 2
    assert all("of 1 partitions" in line and "s left" in line for line in lines)


def test_the_rest_of_the_time_follows_from_the_rate(tmp_path):
    progress = RecoveryProgress(tmp_path, ManualClock(), partitions=4, total_bytes=400 << 20)
    progress.opened()
    progress.checked(100 << 20)
    start_ms = ManualClock().monotonic_ms()
    assert progress.text(start_ms + 2000) == (
        f"{tmp_path}: 1 of 4 partitions, 100 of 400 MiB, 50 MiB/s, about 6 s left"
    )


@pytest.mark.slow
def test_waiting_goes_on_while_a_recovery_makes_progress():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    entry = BrokerEntry(
        id=1, host="127.0.0.1", port=port, pid=None, data_dir="d", config="c", log_file="l"
    )
    stuck = threading.Event()
    asked = 0

    def recovery_of(_entry: BrokerEntry) -> str:
        nonlocal asked
        asked += 1
        if asked > 40:
            stuck.set()
        return f"{MARK}{min(asked, 40)}"

    told: list[str] = []
    with pytest.raises(CommandError, match="not up after"):
        wait_until_serving(
            [entry],
            expected=[1],
            timeout_s=1.0,
            check_alive=lambda: None,
            progress=told.append,
            recovery_of=recovery_of,
        )
    # 40 looks with pauses of 50 ms are longer than the time without progress.
    assert stuck.is_set()
    assert told[-1] == f"broker 1: {MARK}40"
