"""R-CLI2: where partitions begin is asked for again while no broker answers, and a position goes
with a reset."""

import socket

import pytest

from storage_engine.client import Consumer
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_positions import Positions
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms
from storage_engine.tests.client.support.batches import append_records

TIMEOUT_MS = 1_500
T0 = TopicPartition("t", 0)
POLLS = 20


@pytest.mark.slow
def test_brokers_that_do_not_answer_are_an_error_after_the_timeout_and_not_before():
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    positions = Positions(
        ConsumerConfig.of(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "group.id": "g",
                "default.api.timeout.ms": TIMEOUT_MS,
            }
        )
    )
    positions.assign([TopicPartition("t", 0)])
    began_ms = monotonic_ms()
    with pytest.raises(HeadraceError, match="no broker answers"):
        while True:
            positions.find()
    assert monotonic_ms() - began_ms > TIMEOUT_MS
    positions.close()


def append(fake, count):
    for number in range(count):
        append_records(fake, [b"%d" % number])


def poll_until(made, there):
    for _ in range(POLLS):
        if there():
            return
        made.poll(50)
    raise AssertionError("it does not come to that")


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_position_that_was_reset_is_the_one_that_is_committed_even_before_a_record(fake, reset):
    """Else a commit stores the offset that is out of range, and the next consumer with `latest`
    begins behind what came while nobody was there."""
    fake.add_topic("t", [1])
    append(fake, 20)
    # Retention has deleted them all, and nothing has come since.
    fake.partition("t").batches.clear()
    fake.partition("t").start_offset = fake.partition("t").end_offset
    config = {"bootstrap.servers": fake.bootstrap_servers, "auto.offset.reset": reset}
    with Consumer(config) as made:
        made.assign([T0])
        made.seek(T0, 5)
        poll_until(made, lambda: made.position(T0) == 20)


def test_a_reset_does_not_go_past_records_that_are_fetched_and_not_handed_out(fake):
    fake.add_topic("t", [1])
    append(fake, 30)
    config = {"bootstrap.servers": fake.bootstrap_servers, "auto.offset.reset": "latest"}
    with Consumer(config) as made:
        made.assign([T0])
        made.seek(T0, 0)
        (first,) = made.poll(5_000, max_records=1)
        fake.partition("t").batches.clear()
        fake.partition("t").start_offset = fake.partition("t").end_offset = 70
        fake.wake()
        for _ in range(3):
            assert len(made.poll(200, max_records=1)) == 1
        assert (first.offset, made.position(T0)) == (0, 4)
        poll_until(made, lambda: made.position(T0) == 70)
