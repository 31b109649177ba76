"""A broker under each attack keeps its memory, and serves those who have logged in and those who
come.

Some attacks, for two seconds each; with HEADRACE_FAULTS=full all of them, for half a minute.
"""

import threading
import time

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.security.secured_cluster import secured_cluster
from integration_tests.strangers.attacks import ATTACKS
from integration_tests.strangers.broker_state import (
    asking_all_the_time,
    descriptors,
    resident_mib,
)
from integration_tests.support.cluster_support import wait_until
from storage_engine.tests.sampling import ALL_FAULTS

SAMPLE = ("half_handshakes", "whole_first_messages", "renegotiations", "garbage_everywhere")
SECONDS = 30 if ALL_FAULTS else 2
MEMORY_MIB = 120
"""What an attack may take: 900 connections at 32 KiB each, twice, and what each itself takes."""
WAIT_MS = 3000
"""What a small request waits for, but for one in a hundred, on a machine that others use, too."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with secured_cluster(tmp_path_factory.mktemp("attacked")) as cluster:
        yield cluster


@pytest.mark.parametrize("name", ATTACKS if ALL_FAULTS else SAMPLE)
def test_others_are_served_and_memory_stays_bounded(cluster, name):
    pid, port = cluster.brokers.pid(1), cluster.brokers.port(1, "OPEN")
    known = AdminClient(cluster.bob("BOTH"))
    assert known.list_topics(timeout=30).brokers
    mib, open_before = resident_mib(pid), descriptors(pid)
    stop = threading.Event()
    done: list[int] = []
    attack = threading.Thread(target=lambda: done.append(ATTACKS[name](cluster, stop)))
    most_mib = 0.0
    with asking_all_the_time(port) as waits:
        attack.start()
        try:
            ends_at = time.monotonic() + SECONDS
            while time.monotonic() < ends_at:
                assert known.list_topics(timeout=30).brokers
                most_mib = max(most_mib, resident_mib(pid) - mib)
                stop.wait(0.2)
        finally:
            stop.set()
            attack.join()
    told = (
        f"{name}: {done} times, {most_mib:+.1f} MiB at most, waits p50 {waits.part_ms(0.5):.1f} ms,"
        f" p99 {waits.part_ms(0.99):.1f} ms, longest {waits.longest_ms:.1f} ms"
    )
    print(told)
    assert done and done[0] > 1, told
    assert most_mib < MEMORY_MIB, told
    assert waits.part_ms(0.99) < WAIT_MS, told
    # A newcomer is let in, too.
    assert AdminClient(cluster.bob("BOTH")).list_topics(timeout=30).brokers
    wait_until(lambda: descriptors(pid) <= open_before + 4, f"descriptors are given back; {told}")
    assert "unexpected error" not in cluster.brokers.log(1), told
