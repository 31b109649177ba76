"""Faults follow from the seed, as data."""

from simulation.faults.faults import (
    FIRST_OF_DISKS,
    FIRST_OF_MACHINES,
    FIRST_OF_PORTS,
    OF_DISKS,
    OF_MACHINES,
    OF_PROOF,
    OF_TRANSACTIONS,
    FaultKind,
    disk_faults_of,
    machine_faults_of,
    marker_faults_of,
    port_faults_of,
    schedule_of,
)

SEEDS = range(200)


def test_a_seed_has_one_schedule_and_a_longer_run_begins_with_it():
    for seed in SEEDS:
        short, long = schedule_of(seed, seconds=20), schedule_of(seed, seconds=40)
        assert short == schedule_of(seed, seconds=20)
        assert long[: len(short)] == short


def test_schedules_differ_and_have_every_kind_of_fault():
    schedules = [schedule_of(seed, seconds=20) for seed in SEEDS]
    assert len({str(schedule) for schedule in schedules}) == len(SEEDS)
    kinds = {fault.kind for schedule in schedules for fault in schedule}
    assert kinds == set(FaultKind) - {*OF_TRANSACTIONS, *OF_PROOF, *OF_DISKS, *OF_MACHINES}


def test_faults_of_markers_have_numbers_of_their_own():
    for seed in SEEDS:
        numbers = [fault.number for fault in schedule_of(seed, seconds=20)]
        numbers += [fault.number for fault in marker_faults_of(seed, seconds=20)]
        assert len(numbers) == len(set(numbers))
    both = {fault.kind for seed in SEEDS for fault in marker_faults_of(seed, seconds=20)}
    assert both == set(OF_TRANSACTIONS)


def test_faults_of_ports_have_numbers_of_their_own():
    for seed in SEEDS:
        faults = port_faults_of(seed, brokers=3, seconds=20)
        assert all(fault.number >= FIRST_OF_PORTS for fault in faults)
        assert {fault.kind for fault in faults} <= set(OF_PROOF)


def test_faults_of_disks_have_numbers_of_their_own_and_power_is_lost_among_them():
    found = set()
    for seed in SEEDS:
        faults = disk_faults_of(seed, brokers=3, seconds=20)
        assert len({fault.number for fault in faults}) == len(faults)
        assert all(fault.number >= FIRST_OF_DISKS for fault in faults)
        found |= {fault.kind for fault in faults}
    assert found == {*OF_DISKS, FaultKind.POWER_LOSS}


def test_faults_of_machines_have_numbers_of_their_own():
    found = set()
    for seed in SEEDS:
        faults = machine_faults_of(seed, brokers=3, seconds=20)
        assert len({fault.number for fault in faults}) == len(faults)
        assert all(fault.number >= FIRST_OF_MACHINES for fault in faults)
        found |= {fault.kind for fault in faults}
    assert found == {*OF_MACHINES}


def test_faults_are_in_order_and_never_between_a_broker_and_itself():
    for seed in SEEDS:
        schedule = schedule_of(seed, seconds=20)
        assert [fault.number for fault in schedule] == list(range(1, len(schedule) + 1))
        assert [fault.at_ms for fault in schedule] == sorted(fault.at_ms for fault in schedule)
        assert all(fault.broker != fault.other for fault in schedule)
