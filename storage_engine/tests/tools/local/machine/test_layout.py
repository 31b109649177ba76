"""Which brokers a machine has: for each core one, dealt over the disks, never renumbered."""

from collections import Counter
from dataclasses import replace

import pytest

from storage_engine.core.errors import HeadraceError
from storage_engine.tests.tools.local.machine.made_layout import NEW, laid_out
from storage_engine.tools.local.machine.layout import (
    LayoutRequest,
    MachineLayout,
    id_of_host,
    parse_disks,
    parse_size_mib,
)


def disks_of(layout: MachineLayout) -> Counter:
    """The number of brokers on each disk."""
    return Counter(
        each.partition("/headrace/")[0] for broker in layout.brokers for each in broker.log_dirs
    )


def test_a_host_of_sixteen_cores_has_a_broker_on_each_of_fourteen():
    layout = laid_out(NEW)
    assert [broker.id for broker in layout.brokers] == list(range(1000, 1014))
    assert [broker.port for broker in layout.brokers] == list(range(9092, 9106))
    assert {broker.cpu for broker in layout.brokers} == set(range(2, 16))
    assert all(len(broker.log_dirs) == 1 for broker in layout.brokers)
    assert sorted(disks_of(layout).values()) == [3, 3, 4, 4]
    assert layout.brokers[0].log_dirs == ("/d1/headrace/broker-1000",)
    assert layout.broker_memory_mib == 4096


def test_with_more_disks_than_brokers_none_is_left_out():
    layout = laid_out(replace(NEW, cores=3))
    assert set(disks_of(layout)) == {"/d1", "/d2", "/d3", "/d4"}
    assert set(disks_of(layout).values()) == {1}


def test_the_same_request_again_changes_nothing():
    layout = laid_out(NEW)
    assert laid_out(NEW, layout) == layout
    theirs = laid_out(replace(NEW, run_as="kafka", has_user_units=True))
    assert (layout.run_as, theirs.run_as, theirs.has_user_units) == ("headrace", "kafka", True)
    assert laid_out(LayoutRequest(), theirs) == theirs
    assert laid_out(LayoutRequest(), layout) == layout


def test_cores_that_are_added_leave_everything_where_it_is():
    before = laid_out(replace(NEW, cores=10))
    after = laid_out(LayoutRequest(cores=14), before)
    assert after.brokers[:10] == before.brokers
    assert [broker.id for broker in after.brokers[10:]] == [1010, 1011, 1012, 1013]
    assert len({broker.cpu for broker in after.brokers}) == 14
    assert sorted(disks_of(after).values()) == [3, 3, 4, 4]


def test_a_disk_that_is_added_gets_its_share_of_the_brokers():
    before = laid_out(NEW)
    after = laid_out(LayoutRequest(disks=(*before.disks, "/d5")), before)
    assert disks_of(after)["/d5"] == 2
    for old, new in zip(before.brokers, after.brokers, strict=True):
        assert new.log_dirs[:1] == old.log_dirs
        assert replace(new, log_dirs=old.log_dirs) == old
    assert laid_out(LayoutRequest(), after) == after


def test_disks_and_cores_that_are_added_at_once_go_together():
    before = laid_out(NEW)
    after = laid_out(LayoutRequest(cores=16, disks=("/d5", *before.disks)), before)
    assert after.disks == (*before.disks, "/d5")
    assert [broker.log_dirs[0] for broker in after.brokers[14:]] == [
        "/d5/headrace/broker-1014",
        "/d5/headrace/broker-1015",
    ]


def test_more_brokers_than_cores_share_them_only_where_that_is_asked_for():
    layout = laid_out(replace(NEW, cores=3, has_shared_cores=True), cpus=range(2))
    assert [broker.cpu for broker in layout.brokers] == [1, 0, 1]


@pytest.mark.parametrize(
    ("host", "first"),
    [
        ("h1", 1_000),
        ("h3.example.org", 3_000),
        ("kafka-012", 12_000),
        ("node", None),
        ("10.0.0.7", None),
        ("h2147484", None),
        ("h99999999999999999999", None),
    ],
)
def test_ids_follow_from_the_number_of_the_host(host, first):
    assert id_of_host(host) == first


def test_hosts_with_other_numbers_never_share_an_id():
    ids = [
        {broker.id for broker in laid_out(replace(NEW, host=f"h{number}")).brokers}
        for number in range(50)
    ]
    assert len(set().union(*ids)) == 50 * 14


REFUSED = [
    (replace(NEW, host=None), "--host is missing"),
    (replace(NEW, cores=None), "--cores is missing"),
    (replace(NEW, disks=None), "--disks is missing"),
    (replace(NEW, zookeeper=None), "--zookeeper is missing"),
    (replace(NEW, host="h 1"), "--host 'h 1' is no name of a host"),
    (replace(NEW, host="-h1"), "is no name of a host"),
    (replace(NEW, host="h1/../x"), "is no name of a host"),
    (replace(NEW, host="h1\n"), "is no name of a host"),
    (replace(NEW, host="hé1"), "is no name of a host"),
    (replace(NEW, host="h" * 64), "is no name of a host"),
    (replace(NEW, host="node"), "ends in no number from which the ids of brokers could follow"),
    (replace(NEW, first_id=-1), "--first-id -1 is impossible"),
    (replace(NEW, first_id=2**31), "--first-id 2147483648 is impossible"),
    (replace(NEW, cores=17), "--cores 17: this machine has 16"),
    (replace(NEW, cores=0), "--cores 0 is impossible; give 1 to 100"),
    (replace(NEW, base_port=65_530), "--base-port 65530 is impossible for 14 brokers"),
    (replace(NEW, zookeeper="h1:x"), "--zookeeper 'h1:x' is not of the form"),
    (replace(NEW, machines=0), "--machines 0 is impossible"),
    (replace(NEW, memory_mib=2048), "give --memory at least 3584m"),
]


@pytest.mark.parametrize(("request_", "problem"), REFUSED)
def test_what_cannot_be_is_told(request_, problem):
    with pytest.raises(HeadraceError) as caught:
        laid_out(request_)
    assert problem in str(caught.value)


KEPT = [
    (LayoutRequest(host="h2"), "is the layout of machine h1, not of h2"),
    (LayoutRequest(cores=13), "has 14 brokers, --cores 13 would leave the data of 1 out"),
    (LayoutRequest(disks=("/d1", "/d2", "/d3")), "has data on /d4, which --disks leaves out"),
    (LayoutRequest(base_port=9000), "the ports of this machine begin at 9092"),
    (LayoutRequest(first_id=7), "the ids of this machine's brokers begin at 1000"),
]


@pytest.mark.parametrize(("request_", "problem"), KEPT)
def test_nothing_that_is_there_is_dropped_or_renumbered(request_, problem):
    with pytest.raises(HeadraceError) as caught:
        laid_out(request_, laid_out(NEW))
    assert problem in str(caught.value)


def test_what_may_change_changes():
    before = laid_out(NEW)
    after = laid_out(LayoutRequest(rack="z2", zookeeper="h4", memory_mib=28 << 10), before)
    assert (after.rack, after.zookeeper, after.broker_memory_mib) == ("z2", "h4", 2048)
    assert after.brokers == before.brokers


@pytest.mark.parametrize("text", ["d1", "/d1,,/d2", "/d 1", "/d1,/d1/", "/%h"])
def test_disks_that_are_none_are_told(text):
    with pytest.raises(HeadraceError, match="--disks"):
        parse_disks(text)


def test_disks_and_sizes_are_read():
    assert parse_disks("/d1, /d2/") == ("/d1", "/d2")
    assert parse_size_mib("48g") == 48 << 10
    assert parse_size_mib("512M") == 512
    for text in ("48", "0g", "much", "-1g", "4k"):
        with pytest.raises(HeadraceError, match="is no size"):
            parse_size_mib(text)
