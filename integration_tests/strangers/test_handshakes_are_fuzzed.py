"""Conversations of TLS and SASL that are changed on their way leave a broker as it was.

Ten minutes with HEADRACE_FAULTS=full, with another seed each time, else some seconds. Nothing
unforeseen is in the broker's log, its memory and descriptors are what they were, and others are
served meanwhile.
"""

import os
import threading
import time

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.security.secured_cluster import secured_cluster
from integration_tests.strangers.broker_state import (
    asking_all_the_time,
    descriptors,
    resident_mib,
)
from integration_tests.strangers.handshake_fuzzer import HandshakeFuzzer, Place
from integration_tests.support.cluster_support import wait_until
from storage_engine.tests.sampling import ALL_FAULTS

SECONDS = float(os.environ.get("HEADRACE_FUZZ_SECONDS", "600" if ALL_FAULTS else "3"))
SEED = int.from_bytes(os.urandom(4)) if ALL_FAULTS else int(os.environ.get("HEADRACE_SEED", "15"))
THREADS = 4
WARM_UP_PART = 0.2
"""Of the time: buffers and caches are made."""
MEMORY_MIB = 24
"""Of growth afterwards: what the allocator keeps, whatever the number of conversations."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with secured_cluster(tmp_path_factory.mktemp("fuzzed")) as cluster:
        yield cluster


def test_no_conversation_changes_anything(cluster):
    port, pid = cluster.brokers.port, cluster.brokers.pid(1)
    places = [
        Place(port=port(1, "MTLS"), has_tls=True, certificate=cluster.client_file),
        Place(port=port(1, "MTLS"), has_tls=True, certificate=cluster.stranger_file),
        Place(port=port(1, "BOTH"), has_tls=True),
        Place(port=port(1, "SASL"), has_tls=False),
        Place(port=port(1, "OPEN"), has_tls=False),
    ]
    assert AdminClient(cluster.bob("BOTH")).list_topics(timeout=30).brokers
    fuzzers = [HandshakeFuzzer(places, SEED + number) for number in range(THREADS)]
    ends_at = time.monotonic() + SECONDS
    before: dict[str, float] = {}

    def fuzz(fuzzer: HandshakeFuzzer) -> None:
        while time.monotonic() < ends_at:
            fuzzer.talk()

    open_before = descriptors(pid)
    threads = [threading.Thread(target=fuzz, args=(each,)) for each in fuzzers]
    with asking_all_the_time(port(1, "OPEN")) as waits:
        for thread in threads:
            thread.start()
        time.sleep(SECONDS * WARM_UP_PART)
        before["mib"] = resident_mib(pid)
        for thread in threads:
            thread.join()
    grown = resident_mib(pid) - before["mib"]
    talked, shaken = sum(f.talked for f in fuzzers), sum(f.shaken for f in fuzzers)
    told = (
        f"seed {SEED}: {talked} conversations, {shaken} handshakes, {grown:+.1f} MiB, waits p99"
        f" {waits.part_ms(0.99):.1f} ms, longest {waits.longest_ms:.1f} ms"
    )
    print(told)
    assert talked > 10 * SECONDS and shaken, told
    assert grown < MEMORY_MIB, told
    wait_until(lambda: descriptors(pid) <= open_before + 2, f"descriptors are given back; {told}")
    log = cluster.brokers.log(1)
    for unforeseen in ("unexpected error", "Traceback", "Fatal error", "never retrieved"):
        assert unforeseen not in log, told
    assert AdminClient(cluster.bob("BOTH")).list_topics(timeout=30).brokers
