"""Brokers by their id and by the name of their machine."""

import pytest

from storage_engine.tests.tools.placement.layouts import layout
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.cluster_layout import named_brokers

MACHINES = {1: "h1", 2: "h1", 3: "h2"}


def test_a_name_is_a_broker_or_all_of_a_machine():
    cluster = layout([], machines=MACHINES)
    assert named_brokers(cluster, "2") == [2]
    assert named_brokers(cluster, "h1") == [1, 2]
    assert named_brokers(cluster, "4") == [4]


@pytest.mark.parametrize("name", ["h3", "5", "", "-1", "²"])
def test_an_unknown_name_is_told_with_the_known_ones(name):
    with pytest.raises(CommandError) as told:
        named_brokers(layout([], machines=MACHINES), name)
    assert str(told.value) == (
        f"there is no broker or host '{name}'; brokers are 1, 2, 3, 4; hosts are h1, h2"
    )
    with pytest.raises(CommandError, match="no broker has a broker"):
        named_brokers(layout([]), name)
