"""What queries post is checked, and the first wrong field is named."""

import pytest

from headrace_console.problem import ConsoleError
from headrace_console.tests.queries.posted import QUERY, event, parsed


def test_a_rate_that_is_no_number_does_not_cost_the_post() -> None:
    post = event()
    post["progress"] |= {"inputRowsPerSecond": float("nan"), "processedRowsPerSecond": float("inf")}
    (kept,) = parsed(post)
    assert kept.progress.kept.input_rows_per_s is kept.progress.kept.processed_rows_per_s is None


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"kind": "x"}, r"events\[1\]\.kind"),
        ({"at_ms": -1}, r"events\[1\]\.at_ms"),
        ({"query": None}, r"events\[1\]\.query"),
        ({"query": {"id": "x", "run_id": QUERY}}, r"events\[1\]\.query\.id"),
        ({"lag": True}, r"events\[1\]\.lag"),
        ({"topics": [1]}, r"events\[1\]\.topics"),
        ({"topics": ["\ud800"]}, r"events\[1\]\.topics"),
        ({"commits": [{"outcome": "x"}]}, r"events\[1\]\.commits\[0\]\.outcome"),
        ({"progress": []}, r"events\[1\]\.progress"),
    ],
)
def test_the_first_wrong_field_is_named_and_nothing_is_kept(changed: dict, named: str) -> None:
    with pytest.raises(ConsoleError, match=named):
        parsed(event(), {**event(), **changed})
