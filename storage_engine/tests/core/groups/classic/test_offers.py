"""The protocols that members offer: which one a group takes, and how many it keeps."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic import offers
from storage_engine.tests.core.groups.group_bench import GroupBench


@pytest.mark.parametrize(
    ("orders", "chosen"),
    [
        # Two members prefer each, of the two that all have: the oldest member decides.
        (("abc", "cb", "bc", "dcb"), "b"),
        (("abc", "cb", "dcb"), "c"),
    ],
)
def test_the_protocol_is_the_one_that_most_prefer_of_those_that_all_have(orders, chosen):
    bench = GroupBench(initial_delay_ms=100)
    requests = [bench.enter(protocols=tuple((name, b"") for name in each))[1] for each in orders]
    bench.advance(200)
    assert {bench.joined(each).protocol for each in requests} == {chosen}


def test_a_group_has_a_bounded_number_of_lists_of_protocols(monkeypatch):
    monkeypatch.setattr(offers, "LISTS_MAX", 3)
    bench = GroupBench()
    requests = [
        bench.join(instance_id=f"i{number}", protocols=(("range", b""), (f"own{number}", b"")))
        for number in range(6)
    ]
    refused = {each: bench.error(each) for each in requests if each in bench.answers}
    assert refused == dict.fromkeys(requests[3:], ErrorCode.INVALID_REQUEST)
    assert len(bench.group().members) == 3


@pytest.mark.parametrize("bound", [100, 101])
def test_what_members_offer_is_bounded_besides_the_groups_record(monkeypatch, bound):
    """Only the chosen protocol comes into the record."""
    monkeypatch.setattr(offers, "OFFERED_MAX_BYTES", bound)
    bench = GroupBench()
    bench.join(instance_id="i0", protocols=(("a", bytes(24)), ("b", bytes(25))))
    second = bench.join(instance_id="i1", protocols=(("a", bytes(24)), ("b", bytes(26))))
    assert len(bench.group().members) == (2 if bound == 101 else 1)
    assert (second in bench.answers) is (bound == 100)
