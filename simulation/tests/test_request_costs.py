"""What a request costs a broker, measured without anything else."""

import pytest

from simulation.request_costs import CostMeter
from storage_engine.protocol.apis import metadata
from storage_engine.protocol.framing import SIZE_BYTES, encode_request_frame


@pytest.fixture
def meter(tmp_path):
    meter = CostMeter(tmp_path, "t", 2)
    yield meter
    meter.close()


def frame(topics: int) -> bytes:
    names = [f"absent-{number}" for number in range(topics)]
    request = metadata.MetadataRequest(topics=names, allow_auto_topic_creation=False)
    return b"".join(encode_request_frame(metadata.API, 8, 1, "client", request))[SIZE_BYTES:]


def test_a_request_is_answered_and_a_larger_one_costs_more(meter):
    meter.cost(frame(1))  # what is loaded on first use is not the request's
    small, large = meter.cost(frame(1)), meter.cost(frame(5_000))
    assert small.is_answered and large.is_answered
    assert 0 < small.loop_ms < large.loop_ms
    assert large.turn_ms <= large.loop_ms


def test_a_request_that_can_not_be_read_ends_its_connection_and_is_answered_so(meter):
    assert meter.cost(b"\x00\x03\x00\x63" + bytes(10)).is_answered


def test_memory_is_that_of_the_request_alone(meter):
    meter.memory(frame(1))
    peak, kept = meter.memory(frame(5_000))
    assert peak > 100_000
    assert kept < peak / 2
