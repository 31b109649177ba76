"""Proof of a broker's death, and the order in which brokers act on it: R-CTL12."""

from dataclasses import replace

import pytest

from storage_engine.core.control.death_proof import (
    MAX_STEPS,
    PROBES,
    STEP_MS,
    PortVerdict,
    RefusedPort,
    closing_delay_ms,
    is_of_the_majority,
    is_same_process,
    may_be_local,
)
from storage_engine.core.ports import PortAnswer, ProcessIdentity

OWN = ProcessIdentity(boot_id="a", pid_namespace=1, time_namespace=2, pid=3, start_ticks=4)


def test_numbers_mean_the_same_process_only_within_one_start_of_one_kernel_and_its_namespaces():
    assert may_be_local(OWN, replace(OWN, pid=7, start_ticks=8))
    for other in (
        replace(OWN, boot_id="b"),
        replace(OWN, pid_namespace=7),
        replace(OWN, time_namespace=7),
        None,
    ):
        assert not may_be_local(OWN, other)
        assert not may_be_local(other, OWN)


def test_a_process_that_started_at_another_time_is_another():
    assert is_same_process(OWN, 4)
    assert not is_same_process(OWN, 5)


@pytest.mark.parametrize(
    ("own", "controller", "steps"), [(1, 3, 1), (2, 3, 2), (3, 3, 0), (1, None, 0), (2, -1, 1)]
)
def test_the_controller_comes_first_and_then_the_lowest_id(own, controller, steps):
    living = {1, 2, 3} - {own}
    assert closing_delay_ms(own, controller, living) == steps * STEP_MS


def test_the_controller_is_waited_for_only_where_it_has_the_proof():
    assert closing_delay_ms(1, 9, {2, 3}) == 0


def test_in_a_large_cluster_the_last_act_after_a_bounded_time():
    assert closing_delay_ms(99, 1, set(range(1, 99))) == MAX_STEPS * STEP_MS


def test_only_refusals_in_a_row_prove_a_death():
    port = RefusedPort()
    verdicts = [port.probed(PortAnswer.REFUSED) for _ in range(PROBES)]
    assert verdicts == [PortVerdict.ASK_AGAIN] * (PROBES - 1) + [PortVerdict.DEAD]
    for other in (PortAnswer.ACCEPTED, PortAnswer.SILENT):
        port = RefusedPort()
        for _ in range(PROBES - 1):
            port.probed(PortAnswer.REFUSED)
        assert port.probed(other) is PortVerdict.LIVES


@pytest.mark.parametrize(
    ("answering", "brokers", "expected"),
    [(0, 1, True), (0, 2, False), (1, 3, True), (0, 3, False), (1, 4, False), (2, 4, True)],
)
def test_who_reaches_half_of_the_brokers_or_fewer_believes_no_port(answering, brokers, expected):
    assert is_of_the_majority(answering, brokers) is expected
