"""Samples of processor time."""

import os
import subprocess
import sys
import time

from benchmarks.machines.processor_times import ProcessorTimes

_WORK = "sum(range(3_000_000)); print('done', flush=True); input()"


def test_a_process_that_has_ended_keeps_its_time_and_one_that_came_counts_from_its_start():
    pids = [os.getpid()]
    with ProcessorTimes(lambda: {"all": pids}) as times:
        began_s = time.time()
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        pids.append(worker.pid)
        assert worker.stdout is not None
        worker.stdout.readline()
        times.sample()
        with_worker = times.between("all", began_s, time.time())
        worker.communicate(b"\n")
        times.sample()
        after_it = times.between("all", began_s, time.time())
    assert 0 < with_worker <= after_it
    assert times.between("none", began_s, time.time()) == 0
