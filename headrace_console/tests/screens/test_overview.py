"""The first screen, from snapshots that are made here."""

from typing import Any

from headrace_console.cluster.changes import Changes
from headrace_console.screens.overview import overview
from headrace_console.tests.made_snapshots import NOW_MS, snapshot


def test_what_happened_lately_has_the_broker_that_went_and_not_only_what_it_took_with_it() -> None:
    changes = Changes()
    changes.compare(None, snapshot(topics=30))
    seen = snapshot((1, 2), topics=30, isr=(1, 2), gone={3: NOW_MS})
    changes.compare(snapshot(topics=30), seen)
    told: Any = overview(seen, (), (), changes.events()[::-1])["recent"]
    assert [each["kind"] for each in told] == ["isr"] * 2 + ["broker_gone"]
    assert [each["left_out"] for each in told] == [28, 0, 0]
