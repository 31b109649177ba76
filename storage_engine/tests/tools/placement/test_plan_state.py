"""State files: whole or not there, of one cluster and command, held by one command at a time."""

import json
import os

import pytest

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.plan_state import (
    Phase,
    PlanState,
    held,
    read_state,
    write_state,
)
from storage_engine.tools.placement.reassign_plan import read_plan

TP = TopicPartition("t", 0)
STATE = PlanState(
    action="drain",
    cluster_id="abc",
    phase=Phase.UNDER_WAY,
    plan={TP: (2, 3)},
    before={TP: (1, 2)},
    brokers=(1,),
    cordons={1: None, 4: "/d1"},
    is_throttled=True,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.json"


def test_it_is_read_as_it_was_written(path):
    write_state(path, STATE)
    assert read_state(path, "abc", "drain") == STATE


def test_it_is_a_plan_that_reassign_reads(path):
    write_state(path, STATE)
    assert read_plan(path) == {TP: (2, 3)}


def test_a_drain_that_moves_nothing_has_a_state_too(path):
    empty = PlanState(
        action="drain", cluster_id="abc", phase=Phase.UNDONE, plan={}, before={}, cordons={}
    )
    write_state(path, empty)
    assert read_state(path, "abc", "drain") == empty


def test_where_there_is_none_nothing_was_begun(path):
    assert read_state(path, "abc", "drain") is None


def test_a_write_that_fails_leaves_what_was_there(path, monkeypatch):
    write_state(path, STATE)

    def full(_file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_state(path, PlanState(**{**_fields(), "phase": Phase.UNDONE}))
    monkeypatch.undo()
    assert read_state(path, "abc", "drain") == STATE
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def _fields():
    return {name: getattr(STATE, name) for name in PlanState.__slots__}


@pytest.mark.parametrize(
    ("change", "cluster", "action", "problem"),
    [
        ({}, "xyz", "drain", "is the state of another cluster, abc; name another file"),
        ({}, "abc", "rebalance", "is the state of 'headrace drain'; name another file"),
        ({"phase": "odd"}, "abc", "drain", "is no state file of 'headrace drain' .*'odd'"),
        ({"cordons": [1]}, "abc", "drain", "is no state file of 'headrace drain'"),
        ({"before": None}, "abc", "drain", 'must be an object with a list "before"'),
    ],
)
def test_a_file_that_is_another_thing_is_told(path, change, cluster, action, problem):
    write_state(path, STATE)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CommandError, match=problem):
        read_state(path, cluster, action)


def test_one_command_at_a_time_has_it(path):
    told = pytest.raises(CommandError, match="another command is at work with")
    with held(path), told, held(path):
        pass
    with held(path):
        assert read_state(path, "abc", "drain") is None
