"""Pages of lists: filtered, sorted, cut."""

import pytest

from headrace_console.paging import Page, itself
from headrace_console.problem import ConsoleError

ROWS = [
    {"name": "Orders", "size": 5},
    {"name": "clicks", "size": None},
    {"name": "payments", "size": 9},
    {"name": "reorders", "size": 0},
]


def paged(**wanted):
    page = Page(**wanted)
    return page.of(
        ROWS,
        name=lambda row: row["name"],
        keys={"name": lambda row: row["name"].lower(), "size": lambda row: row["size"]},
        default="name",
    )


def names(**wanted):
    return [row["name"] for row in paged(**wanted).rows]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (None, ["clicks", "Orders", "payments", "reorders"]),
        ("-name", ["reorders", "payments", "Orders", "clicks"]),
        ("size", ["reorders", "Orders", "payments", "clicks"]),
        ("-size", ["payments", "Orders", "reorders", "clicks"]),
    ],
)
def test_rows_are_sorted_and_those_without_a_value_come_last_both_ways(sort, expected):
    assert names(sort=sort) == expected


def test_a_filter_is_any_part_of_the_name_in_any_case_and_the_total_is_of_all_pages():
    found = paged(filter="ORDER", limit=1, offset=1)
    assert [row["name"] for row in found.rows] == ["reorders"]
    assert found.total == 2
    assert names(offset=4) == []


def test_a_field_that_does_not_sort_is_told_with_those_that_do():
    with pytest.raises(ConsoleError, match="'sort' must be one of name, size, perhaps with -"):
        paged(sort="-colour")


def test_the_document_says_which_part_of_the_list_it_is():
    document = paged(limit=1, offset=1).document(itself, as_of_ms=7, unanswered=[{"broker": 2}])
    assert document == {
        "as_of_ms": 7,
        "unanswered": [{"broker": 2}],
        "total": 4,
        "offset": 1,
        "limit": 1,
        "rows": [{"name": "Orders", "size": 5}],
    }
