"""A heartbeat that can't be is refused with Kafka's error and a line that says what to do."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer import heartbeat_checks
from storage_engine.tests.core.groups.consumer.consumer_bench import ConsumerBench, topic_id

INVALID = ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("epoch", "how", "code"),
    [
        (0, {"group_id": ""}, INVALID),
        (0, {"group_id": " "}, INVALID),
        (0, {"instance_id": ""}, INVALID),
        (0, {"rack_id": " "}, INVALID),
        (0, {"rebalance_timeout_ms": -1}, INVALID),
        (0, {"owned": None}, INVALID),
        (0, {"owned": {topic_id("t"): frozenset({0})}}, INVALID),
        (0, {"topics": frozenset()}, INVALID),
        (0, {"topics": None}, INVALID),
        (0, {"topics": frozenset(map(str, range(10_001)))}, INVALID),
        (0, {"topics": frozenset({"t" * (4 << 20), "u"})}, INVALID),
        (0, {"member_id": ""}, INVALID),
        (-2, {}, INVALID),
        (-3, {"instance_id": "s"}, INVALID),
        (-(2**31), {}, INVALID),
        (1, {"rebalance_timeout_ms": -2}, INVALID),
        (0, {"assignor": "magic"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_what_can_not_be_is_refused(epoch, how, code):
    bench = ConsumerBench()
    joining = {"rebalance_timeout_ms": 1, "topics": frozenset({"t"}), "owned": {}}
    given = {"member_id": "a", **(joining if epoch == 0 else {}), **how}
    member_id = given.pop("member_id")
    assert bench.code(bench.beat(member_id, epoch, **given)) is code
    assert not bench.coordinator.groups


def test_a_member_without_an_id_gets_one_where_that_is_allowed():
    bench = ConsumerBench()
    assert bench.enter_group("", fresh_member_id="fresh").member_id == "fresh"


def test_the_assignors_that_there_are_stand_in_the_refusal():
    answer = ConsumerBench().enter_group("a", assignor="magic")
    assert "uniform" in answer.message and "range" in answer.message


def test_the_names_of_all_members_are_bounded(monkeypatch):
    monkeypatch.setattr(heartbeat_checks, "NAMED_MAX", 3)
    bench = ConsumerBench()
    bench.members("a")
    code = bench.code(bench.enter_group("b", "t", "u", "v"))
    assert code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.enter_group("b", "t", "u").error is ErrorCode.NONE
    assert bench.code(bench.beat("a", 1, topics=frozenset("xyz"))) is code
    assert bench.beat("a", 1, topics=frozenset("x")).error is ErrorCode.NONE


def test_a_dynamic_members_id_does_not_take_an_instance_id_of_another():
    bench = ConsumerBench()
    bench.enter_group("a", instance_id="s")
    bench.beat("a", -2, instance_id="s")
    bench.enter_group("b")
    code = bench.code(bench.enter_group("b", instance_id="s"))
    assert code is ErrorCode.FENCED_MEMBER_EPOCH
