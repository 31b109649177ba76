"""`headrace bench requests`: no request holds the event loop of a broker for long (R-NET3).

What is bounded here is counted, not timed: a short round measures that every list of every API has
its request, that each is answered or refused, and that twice the items cost no more than twice the
steps; the times are for whoever runs the benchmark.
"""

import gc

import pytest

from benchmarks.largest.requests import TOPIC, largest_requests
from simulation.request_costs import CostMeter
from storage_engine.protocol.apis.registry import SERVED_RANGES, name_of, spec_for
from storage_engine.protocol.framing import parse_request_header

pytestmark = pytest.mark.slow

WITHOUT_LISTS = {
    "ApiVersions", "Heartbeat", "InitProducerId", "AddOffsetsToTxn", "EndTxn", "DescribeCluster",
    "SaslHandshake", "SaslAuthenticate", "DescribeAcls",
}  # fmt: skip
ITEMS = 700
"""More than are decoded at once, so that all that long requests do is done."""


@pytest.fixture(scope="module", params=[False, True], ids=["allowed", "refused"])
def meter(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("meter")
    meter = CostMeter(folder, TOPIC, 5, is_refused=request.param)
    yield meter
    meter.close()


def test_every_api_with_a_list_has_its_largest_requests():
    names = {request.name for request in largest_requests(2, 1 << 20)}
    assert names == {name_of(key) for key in SERVED_RANGES} - WITHOUT_LISTS


def test_largest_requests_are_what_decoders_take():
    for request in largest_requests(100, 1 << 20):
        _, body = parse_request_header(memoryview(bytearray(request.frame)))
        spec_for(request.api_key).decode_request(request.version, body)


@pytest.fixture(scope="module")
def silent(meter):
    """The requests that were neither answered nor refused, after each has been sent once."""
    return [
        (request.name, request.items)
        for request in largest_requests(ITEMS, 1 << 20)
        if not meter.cost(request.frame).is_answered
    ]


def test_every_largest_request_is_answered_or_refused(silent):
    assert silent == []


@pytest.mark.usefixtures("silent")  # what is imported on first use is not the requests'
def test_no_request_leaves_garbage_that_only_a_collection_finds(meter):
    """A broker collects in full so seldom that it would be gigabytes."""
    found = {}
    gc.collect()
    gc.disable()
    gc.freeze()  # so that a collection looks at what a request has made, not at all other tests
    try:
        for request in largest_requests(ITEMS, 1 << 20):
            meter.cost(request.frame)
            unreachable = gc.collect()
            if unreachable >= ITEMS // 2:
                found[request.name, request.items] = unreachable
    finally:
        gc.unfreeze()
        gc.enable()
    assert found == {}
