"""The targets of a group follow its epoch, at once or beside the event loop."""

import pytest

from storage_engine.core.groups.consumer import targets
from storage_engine.core.groups.consumer.events import AssignmentComputed
from storage_engine.core.groups.events import CheckDeadlines, DeleteGroup
from storage_engine.core.groups.settings import ConsumerSettings
from storage_engine.tests.core.groups.consumer.consumer_bench import (
    Client,
    ConsumerBench,
    numbers,
    shapes,
    topic_id,
)
from storage_engine.tests.core.groups.group_bench import G


@pytest.fixture
def all_long(monkeypatch):
    """Every computation counts as long."""
    monkeypatch.setattr(targets, "SHORT_WORK", 0)


def test_a_large_assignment_is_computed_beside_the_loop():
    bench = ConsumerBench({"t": targets.SHORT_WORK})
    bench.enter_group("a")
    assert [each.group_id for each in bench.to_compute] == [G]


@pytest.mark.usefixtures("all_long")
def test_the_first_member_has_an_epoch_while_its_partitions_are_computed():
    bench = ConsumerBench()
    answer = bench.enter_group("a")
    assert (answer.member_epoch, answer.assignment) == (1, {})
    assert bench.state() == "Assigning"
    bench.compute()
    answer = bench.beat("a", 1)
    assert (answer.member_epoch, numbers(answer.assignment)) == (2, [0, 1, 2, 3])


@pytest.mark.usefixtures("all_long")
def test_members_that_come_while_it_is_computed_share_the_next_one():
    bench = ConsumerBench()
    bench.enter_group("a")
    for name in "bcd":
        bench.enter_group(name)
    assert len(bench.to_compute) == 1
    bench.compute()
    (second,) = bench.to_compute
    assert (second.epoch, second.members) == (bench.consumer_group().epoch, 4)
    bench.compute()
    assert bench.consumer_group().target_epoch == bench.consumer_group().epoch


@pytest.mark.usefixtures("all_long")
def test_members_go_on_while_it_is_computed():
    bench = ConsumerBench()
    first, second = bench.members("a", "b")
    bench.enter_group("c")
    assert bench.to_compute
    for client in (first, second):
        assert bench.beat(client.name, client.epoch).member_epoch == client.epoch


@pytest.mark.usefixtures("all_long")
def test_what_was_computed_for_a_member_that_has_left_is_dropped():
    bench = ConsumerBench()
    bench.members("a")
    bench.enter_group("b")
    bench.beat("b", -1)
    bench.compute()
    group = bench.consumer_group()
    assert {*group.content.targets} == {"a"}
    bench.compute()
    assert numbers(group.target("a")) == [0, 1, 2, 3]


@pytest.mark.usefixtures("all_long")
def test_a_result_for_another_epoch_is_dropped():
    bench = ConsumerBench()
    bench.enter_group("a")
    (asked,) = bench.to_compute
    result = asked.compute()
    for epoch in (asked.epoch - 1, asked.epoch + 1):
        bench.step(AssignmentComputed(group_id=G, epoch=epoch, targets=result, at=bench.at))
        bench.advance(0)
    assert bench.consumer_group().target("a") == {}


@pytest.mark.usefixtures("all_long")
def test_a_result_for_a_former_group_of_the_same_name_is_computed_anew():
    bench = ConsumerBench()
    bench.enter_group("a")
    (asked,) = bench.to_compute
    bench.beat("a", -1)
    bench.ask(lambda request: DeleteGroup(request=request, group_id=G))
    bench.enter_group("b")
    assert bench.to_compute.pop().epoch == asked.epoch
    bench.compute()
    bench.compute()
    assert numbers(bench.consumer_group().target("b")) == [0, 1, 2, 3]


@pytest.mark.usefixtures("all_long")
def test_a_computation_that_has_failed_is_asked_for_again():
    bench = ConsumerBench()
    bench.enter_group("a")
    (asked,) = bench.to_compute
    bench.step(AssignmentComputed(group_id=G, epoch=asked.epoch, targets=None, at=bench.at))
    assert len(bench.to_compute) == 1
    bench.advance(targets.RETRY_MS)
    assert len(bench.to_compute) == 2, "also where no member of the consumer protocol is there"


@pytest.mark.usefixtures("all_long")
def test_a_new_coordinator_computes_what_the_last_one_had_not_finished():
    bench = ConsumerBench()
    bench.members("a")
    bench.enter_group("b")
    bench.fail_over()
    bench.compute()
    group = bench.consumer_group()
    assert group.epoch == group.target_epoch


@pytest.mark.usefixtures("all_long")
def test_the_targets_of_many_members_are_written_in_pieces():
    bench = ConsumerBench({"t": 2_200})
    for number in range(1_100):
        bench.enter_group(f"m{number}", replicate=False)
    bench.replicate()
    bench.compute()
    (asked,) = bench.to_compute
    targets_of_all = asked.compute()
    bench.step(
        AssignmentComputed(group_id=G, epoch=asked.epoch, targets=targets_of_all, at=bench.at)
    )
    sizes = []
    while bench.consumer_group().computing is not None:
        before = len(bench.log)
        bench.step(CheckDeadlines(at=bench.at))
        sizes.append(len(bench.log) - before)
    assert sizes == [500, 500, 100, 1], "the epoch of the targets comes last"


def test_the_assignor_is_that_of_most_members():
    bench = ConsumerBench({"t": 3, "u": 3}, consumer=ConsumerSettings())
    clients = [Client(bench, name, "t", "u", assignor="range") for name in "ab"]
    clients.append(Client(bench, "c", "t", "u", assignor="uniform"))
    bench.settle(clients)
    for client in clients:
        assert numbers(client.owned, "t") == numbers(client.owned, "u"), "ranges go together"


def test_a_deleted_topic_is_taken_from_the_members():
    bench = ConsumerBench({"t": 2, "u": 2})
    (only,) = bench.members("a")
    only.leave()
    client = Client(bench, "b", "t", "u")
    bench.settle([client])
    bench.tell_topics(shapes(t=2))
    bench.settle([client])
    assert {*client.owned} == {topic_id("t")}


def test_a_topic_that_is_made_again_is_another_one():
    bench = ConsumerBench({"t": 2})
    (client,) = bench.members("a")
    again = shapes(t=2)["t"]._replace(topic_id=topic_id("t", 1))
    bench.tell_topics({"t": again})
    bench.settle([client])
    assert client.owned == {topic_id("t", 1): frozenset({0, 1})}


def test_a_topic_that_has_grown_is_shared_out_anew():
    bench = ConsumerBench({"t": 2})
    (client,) = bench.members("a")
    bench.tell_topics(shapes(t=3))
    assert numbers(client.turn().assignment) == [0, 1, 2]


def test_topics_that_nobody_subscribes_to_change_nothing():
    bench = ConsumerBench({"t": 2})
    bench.members("a")
    before = len(bench.log)
    bench.tell_topics(shapes(t=2, other=5))
    assert len(bench.log) == before
