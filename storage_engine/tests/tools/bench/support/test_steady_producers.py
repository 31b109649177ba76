"""Producers under kills: what was acknowledged, and what of it is there."""

import time

import pytest

from benchmarks.support.steady_producers import OwnProducer, lost_and_doubled
from storage_engine.tools.errors import CommandError


@pytest.fixture
def topic(fake):
    fake.add_topic("t", [1])
    return fake


def test_a_gap_is_between_two_acknowledgements_and_all_that_is_acknowledged_is_there(topic):
    with OwnProducer(topic.bootstrap_servers, "t") as producer:
        since_s = time.time()
        port = topic.stop_broker(1)
        time.sleep(0.3)
        topic.start_broker(1, port)
        producer.until_acknowledged(time.time(), 60)
        assert producer.longest_gap_s(since_s) >= 0.3
        with pytest.raises(CommandError, match="nothing was acknowledged to a producer for 0 s"):
            producer.until_acknowledged(time.time() + 3_600, 0.05)
    numbers = producer.numbers()
    assert producer.failed == 0 and numbers == list(range(len(numbers)))
    servers = topic.bootstrap_servers
    assert lost_and_doubled(servers, "t", numbers) == (0, 0)
    assert lost_and_doubled(servers, "t", [*numbers, 10**9]) == (1, 0)
    log = topic.partition("t")
    log.append(log.batches[0], idempotent_checks=False)
    lost, doubled = lost_and_doubled(servers, "t", numbers)
    assert lost == 0 and doubled >= 1
