"""The names of the assignors."""

from storage_engine.core.groups.assignors.assignors import ASSIGNORS


def test_uniform_serves_those_who_ask_for_none():
    assert list(ASSIGNORS) == ["uniform", "range"]
