"""Idle replicas share their empty containers; no test of this package may change one of them."""

import importlib
import re
from collections import deque
from pathlib import Path

import pytest

from storage_engine.tests.shared_empties import (
    SHARED,
    SharedContainerChangedError,
    unchangeable,
)

PACKAGE = Path(__file__).parents[2]
CONTAINER = re.compile(
    r"^(_[A-Z_]+)(?:: .+)? = (?:\{\}|\[\]|dict\(\)|set\(\)|bytearray\(\)|deque\(maxlen=0\))$",
    re.MULTILINE,
)


def test_every_shared_empty_container_is_watched():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        relative = path.relative_to(PACKAGE.parent)
        if "tests" not in relative.parts and (names := CONTAINER.findall(path.read_text())):
            found[".".join(relative.with_suffix("").parts)] = " ".join(names)
    assert found == SHARED


def test_those_that_tests_run_with_refuse_changes():
    for module, names in SHARED.items():
        for name in names.split():
            shared = getattr(importlib.import_module(module), name)
            assert type(shared).__name__.startswith("Shared")
            assert not shared


@pytest.mark.parametrize(
    "change",
    [
        lambda: unchangeable(dict).__setitem__(1, 2),
        lambda: unchangeable(dict).update({1: 2}),
        lambda: unchangeable(dict).setdefault(1, 2),
        lambda: unchangeable(deque).append(1),
        lambda: unchangeable(bytearray).__iadd__(b"1"),
        lambda: unchangeable(bytearray).extend(b"1"),
    ],
)
def test_a_change_raises(change):
    with pytest.raises(SharedContainerChangedError):
        change()


def test_what_changes_nothing_does_not():
    assert unchangeable(dict).pop(1, None) is None
    assert unchangeable(dict).clear() is None
    assert {1: 2} | unchangeable(dict) == {1: 2}
