"""What clients wait for when a broker is gone."""

from datetime import datetime

import pytest

from benchmarks.support.failover_clients import Survivors, watch_fired_s
from storage_engine.broker.controller.watches import BROKERS_WATCH_FIRED
from storage_engine.core.errors import DeadlineExceededError, ErrorCode
from storage_engine.net.deadline import Deadline
from storage_engine.tools.errors import CommandError


@pytest.fixture
def survivors(fake):
    fake.add_topic("t", [1, 2, 3])
    with Survivors([("127.0.0.1", server.port) for server in fake.servers.values()]) as survivors:
        yield survivors


def test_another_controller_must_be_alive(fake, survivors):
    fake.controller_id = 2
    survivors.until_controller_is_not(1, Deadline.after(5_000))
    assert survivors.controller_id() == 2
    for wrong in (1, 9):
        fake.controller_id = wrong
        with pytest.raises(DeadlineExceededError, match="a new controller was named"):
            survivors.until_controller_is_not(1, Deadline.after(200))


def test_all_partitions_must_be_there_led_and_as_wanted(fake, survivors):
    def wait(partitions: int, leader_is_not: int) -> None:
        deadline = Deadline.after(200)
        survivors.until_led("t", partitions, deadline, lambda row: row.leader != leader_is_not)

    wait(3, 9)
    for partitions, leader_is_not in ((4, 9), (3, 2)):
        with pytest.raises(DeadlineExceededError, match=f"all {partitions} partitions had"):
            wait(partitions, leader_is_not)
    fake.move_leader("t", 1, -1)
    with pytest.raises(DeadlineExceededError):
        wait(3, 9)


def test_a_partition_that_refuses_is_written_to_until_it_accepts(fake, survivors):
    fake.partition("t", 1).errors.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 2)
    survivors.write_to_all("t", Deadline.after(20_000))
    assert [len(each.batches) for each in fake.topics["t"].values()] == [1, 1, 1]


def test_the_first_notice_after_the_loss_counts(tmp_path):
    log = tmp_path / "broker.log"
    times = ["2026-01-01 10:00:01,500", "2026-01-01 10:00:03,250", "2026-01-01 10:00:09,000"]
    lines = [f"{each} INFO headrace: {BROKERS_WATCH_FIRED}" for each in times]
    lines.insert(2, "2026-01-01 10:00:02,900 INFO headrace: something else")
    log.write_text("\n".join(lines))
    lost_s = datetime(2026, 1, 1, 10, 0, 2).timestamp()
    assert watch_fired_s(log, after_s=lost_s) == pytest.approx(lost_s + 1.25)
    with pytest.raises(CommandError, match="does not say that the controller noticed"):
        watch_fired_s(log, after_s=lost_s + 60)
