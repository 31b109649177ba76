"""The size of a cluster, by figures that were measured."""

from dataclasses import replace

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.tools.local.machine.sizing import GB, MOST_REPLICAS, ClusterLoad, size_of

A_GB = ClusterLoad(
    records_per_s=1_000_000,
    record_bytes=1_000,
    partitions=100,
    retention_s=3600,
    readers=1e-9,
    batch_bytes=128 << 10,
)


@pytest.mark.parametrize(
    ("load", "cores"),
    [
        (replace(A_GB, replication_factor=1), 1.38),
        (A_GB, 4.55),
        (replace(A_GB, batch_bytes=16_384, readers=1), 15.9),
        (replace(A_GB, records_per_s=1_000, record_bytes=100, batch_bytes=100), 0.734),
    ],
)
def test_what_was_measured_is_computed_again(load, cores):
    """docs/scale.md, Several brokers on a host; docs/measurements.md, Clients that we did not
    write."""
    assert size_of(load).busy_cores == pytest.approx(cores, rel=0.03)


def test_brokers_are_half_busy_and_the_same_number_on_each_machine():
    size = size_of(A_GB)
    assert (size.brokers, size.machines, size.cores_of_machine) == (12, 3, 6)
    assert size_of(replace(A_GB, busy=1.0)).brokers == 6


def test_a_small_load_has_a_broker_on_each_machine():
    size = size_of(replace(A_GB, records_per_s=10))
    assert (size.brokers, size.disks_of_machine) == (3, 1)


def test_disks_hold_all_replicas_of_the_retention_and_a_segment_more():
    size = size_of(replace(A_GB, retention_s=100_000))
    kept = 100_000 * GB * 1.01
    assert size.stored_bytes == round(3 * (kept + 100 * (1 << 30)))
    assert size.disks_of_machine == 34
    short = size_of(replace(A_GB, records_per_s=1, retention_s=60))
    assert short.stored_bytes == round(3 * 2 * 60 * 1_000 * 1.01)


def test_memory_grows_with_replicas_and_with_what_was_written_last():
    few, many = (size_of(replace(A_GB, partitions=each)) for each in (100, 120_000))
    cached = 60 * GB
    assert few.memory_of_machine == 4 * 280 * 10**6 + cached
    each = (57 << 20) + 440 * 120_000 + 9_800 * 30_000 + 1_800 * 120_000
    assert many.memory_of_machine == 4 * each + cached


def test_the_network_carries_copies_and_readers():
    size = size_of(replace(A_GB, readers=4))
    assert size.machine_in_bytes_per_s == pytest.approx(GB)
    assert size.machine_out_bytes_per_s == pytest.approx(2 * GB)


def test_tls_takes_more_cores():
    plain, secured = (size_of(replace(A_GB, readers=1, with_tls=each)) for each in (False, True))
    assert 2.4 < secured.busy_cores / plain.busy_cores < 3.5


def test_what_was_never_run_is_warned_of():
    size = size_of(replace(A_GB, partitions=4 * MOST_REPLICAS + 4))
    assert len(size.warnings) == 1 and "10001 replicas" in size.warnings[0]
    assert "some lead nothing" in size_of(replace(A_GB, partitions=3)).warnings[0]
    assert "new controller" in size_of(replace(A_GB, partitions=200_000)).warnings[1]
    assert size_of(A_GB).warnings == ()


def test_replicas_need_machines():
    with pytest.raises(ConfigError, match="3 replicas need as many machines, and there are 2"):
        size_of(replace(A_GB, machines=2))
    with pytest.raises(ConfigError, match=r"a share of 1\.5"):
        size_of(replace(A_GB, full=1.5))
