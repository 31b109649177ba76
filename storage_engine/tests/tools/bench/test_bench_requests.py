"""`headrace bench requests`: no request holds the event loop of a broker for long (R-NET3).

What is bounded here is counted, not timed: a short round measures that every list of every API has
its request, that each is answered or refused, and that twice the items cost no more than twice the
steps; the times are for whoever runs the benchmark.
"""

import gc

import pytest

from benchmarks.support.largest_requests import TOPIC, largest_requests
from storage_engine.protocol.apis.registry import SERVED_RANGES, name_of, spec_for
from storage_engine.protocol.framing import parse_request_header
from storage_engine.simulation.request_costs import CostMeter

WITHOUT_LISTS = {
    "ApiVersions", "Heartbeat", "InitProducerId", "AddOffsetsToTxn", "EndTxn", "DescribeCluster",
}  # fmt: skip
ITEMS = 700
"""More than are decoded at once, so that all that long requests do is done."""


@pytest.fixture(scope="module")
def meter(tmp_path_factory):
    meter = CostMeter(tmp_path_factory.mktemp("meter"), TOPIC, 5)
    yield meter
    meter.close()


def test_every_api_with_a_list_has_its_largest_requests():
    names = {request.name for request in largest_requests(2, 1 << 20)}
    assert names == {name_of(key) for key in SERVED_RANGES} - WITHOUT_LISTS


def test_largest_requests_are_what_decoders_take():
    for request in largest_requests(100, 1 << 20):
        _, body = parse_request_header(memoryview(bytearray(request.frame)))
        spec_for(request.api_key).decode_request(request.version, body)


def test_every_largest_request_is_answered_or_refused(meter):
    silent = [
        (request.name, request.items)
        for request in largest_requests(ITEMS, 1 << 20)
        if not meter.cost(request.frame).is_answered
    ]
    assert silent == []


def test_no_request_leaves_garbage_that_only_a_collection_finds(meter):
    """A broker collects in full so seldom that it would be gigabytes."""
    requests = list(largest_requests(ITEMS, 1 << 20))
    for request in requests:  # what is imported on first use is not the requests'
        meter.cost(request.frame)
    found = {}
    gc.collect()
    gc.disable()
    try:
        for request in requests:
            meter.cost(request.frame)
            unreachable = gc.collect()
            if unreachable >= ITEMS // 2:
                found[request.name, request.items] = unreachable
    finally:
        gc.enable()
    assert found == {}
