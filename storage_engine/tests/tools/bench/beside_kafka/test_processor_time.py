"""The processor time of processes, their children and a JVM."""

import os
import subprocess
import sys
import time

import pytest

from benchmarks.beside_kafka.processor_time import cpu_times, seconds_of

BURN = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass"


def test_processor_time_of_children_that_ended_is_counted():
    before = cpu_times([], os.getpid())
    subprocess.run([sys.executable, "-I", "-S", "-c", BURN], check=True)
    took = cpu_times([], os.getpid()).since(before)
    assert took.python >= 0.25
    assert took.brokers == 0
    # The JVM of a ZooKeeper that other tests of this worker share.
    assert took.all == pytest.approx(took.python + took.jvm)


def test_processor_time_of_a_process_is_finer_than_ticks():
    before = seconds_of([os.getpid()])
    deadline = time.process_time() + 0.005
    while time.process_time() < deadline:
        pass
    assert 0.005 <= seconds_of([os.getpid()]) - before < 1
