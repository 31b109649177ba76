"""A process that appends is killed with SIGKILL: nothing it acknowledged is missing afterwards
(R-LOG8, R-REP7).
"""

import random
import sys
from pathlib import Path

import pytest

from storage_engine.log.log_config import LogConfig
from storage_engine.tests.log.support import (
    ManualClock,
    check_indexes,
    killed_when_told,
    make_batch,
    offsets_of,
    open_log,
    read_all,
)
from storage_engine.tests.sampling import seeds

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500, file_delete_delay_ms=0)


def append_for_ever(path: str, seed: int) -> None:
    """Runs in the child: appends, cuts, flushes, and tells the end it has acknowledged."""
    generator = random.Random(seed)
    log = open_log(Path(path), CONFIG, clock=ManualClock())
    sequence = log.log_end_offset
    while True:
        action = generator.random()
        if action < 0.02 and log.log_end_offset > 50:
            keep = log.log_end_offset - generator.randrange(40)
            print("cut", keep, flush=True)
            log.truncation.truncate_to(keep)
            sequence = log.log_end_offset
        elif action < 0.05:
            log.flush()
        elif action < 0.06:
            log.leader_appends.start_epoch(log.latest_epoch + 1)
        batch = make_batch(1, payload=bytes(generator.randrange(2000)), producer=(5, 0, sequence))
        end = log.leader_appends.append(
            batch, leader_epoch=max(0, log.latest_epoch), now_ms=1
        ).next_offset
        sequence = end
        print("end", end, flush=True)


def last_acknowledged(output: str) -> int:
    """The largest end that no cut has taken back, in whole lines only."""
    end = 0
    for line in output[: output.rfind("\n") + 1].splitlines():
        word, number = line.split()
        end = int(number) if word == "end" else min(end, int(number))
    return end


@pytest.mark.parametrize("seed", seeds(4))
def test_nothing_acknowledged_is_missing_after_sigkill(tmp_path, seed):
    generator = random.Random(seed)
    acknowledged = 0
    for round_number in range(3):
        wanted = generator.randrange(5_000) + 10
        output = killed_when_told(
            __name__, tmp_path, str(seed * 10 + round_number), told_bytes=wanted
        )
        acknowledged = last_acknowledged(output.decode())

        log = open_log(tmp_path, CONFIG)
        assert log.log_end_offset >= acknowledged
        headers = read_all(log, max_bytes=5000)
        assert offsets_of(headers) == list(range(log.log_end_offset))
        for header in headers:
            assert log.leader_epochs.epoch_at(header.base_offset) == header.partition_leader_epoch
        producer = log.producer_state.get(5)
        assert producer is not None
        assert producer.batches[-1].last_offset == log.log_end_offset - 1
        log.close()
        check_indexes(tmp_path)
    assert acknowledged > 0


if __name__ == "__main__":
    append_for_ever(sys.argv[1], int(sys.argv[2]))
