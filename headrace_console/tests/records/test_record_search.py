"""The conditions of a search."""

import json

import pytest

from headrace_console.problem import ConsoleError
from headrace_console.records.record_search import has_field, json_path


@pytest.mark.parametrize(
    ("path", "equals", "found"),
    [
        ("$.a.b[1]", "2", True),
        ("a.b[1]", "2.0", True),
        ("$['a']['c d']", "x", True),
        ("$.a.b[9]", "2", False),
        ("$.a.b.x", "2", False),
        ("$.t", "true", True),
        ("$.t", "1", False),
        ("$.n", "null", True),
    ],
)
def test_fields_are_found_by_their_path(path: str, equals: str, found: bool) -> None:
    data = json.dumps({"a": {"b": [1, 2], "c d": "x"}, "t": True, "n": None}).encode()
    assert has_field(data, json_path(path), equals) is found


@pytest.mark.parametrize("path", ["$", "$..a", "$[x]", "$.a[", "." + ".a" * 30])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ConsoleError, match=r"'path' must"):
        json_path(path)
