"""The leader epoch of a partition whose last one nobody remembers. Source: R-CTL2, R-CTL10."""

from itertools import pairwise

import pytest

from storage_engine.core.control.cluster_state import (
    MAX_FIRST_LEADER_EPOCH,
    first_leader_epoch,
)
from storage_engine.core.control.controller import Controller
from storage_engine.core.control.controller_events import Loaded, WriteStates
from storage_engine.core.ids import ControllerEpoch
from storage_engine.tests.core.control.controller_bench import brokers, topic

HIGHEST = 2**31 - 2


@pytest.mark.parametrize("epoch", [9, 2**20, 2**21 - 1, 2**21, 3_000_000, HIGHEST])
def test_a_partition_without_a_state_has_room_for_its_elections(epoch):
    core = Controller(controller_epoch=ControllerEpoch(epoch))
    effects = core.step(Loaded(brokers=brokers(1, 2, 3), topics={"t": topic()}, states={}))
    (written,) = (effect for effect in effects if isinstance(effect, WriteStates))
    (write,) = written.writes
    assert 9 * 1024 <= write.state.leader_epoch <= 2**31 - 2**27


def test_a_later_controller_begins_higher():
    """Until there is no room for that."""
    tried = [1, 2, 2**20 - 1, 2**20, 2**20 + 1, 2**21 - 1, 2**21, 3_000_000, 3_000_001, 59_000_000]
    epochs = [first_leader_epoch(ControllerEpoch(each)) for each in tried]
    assert all(below < above for below, above in pairwise(epochs))
    assert first_leader_epoch(ControllerEpoch(HIGHEST)) == MAX_FIRST_LEADER_EPOCH
