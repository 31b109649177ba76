"""Lists of topics and partitions."""

import time
from typing import Any

from headrace_console.cluster.snapshot import (
    Ends,
)
from headrace_console.console_settings import Thresholds
from headrace_console.paging import Page
from headrace_console.screens.overview import overview
from headrace_console.screens.problems import find_problems
from headrace_console.screens.topics import partition_list, topic_list
from headrace_console.tests.made_snapshots import NOW_MS, snapshot
from storage_engine.tests.machine import slowness


def test_lists_of_five_thousand_partitions_take_a_moment() -> None:
    many = snapshot(topics=500, partitions=10)
    ends = {tp: Ends(0, 10, 10) for tp, _ in many.partitions()}
    many = snapshot(topics=500, partitions=10, ends=ends, sizes=dict.fromkeys(ends, 1))
    before_s = time.thread_time()
    rows: Any = topic_list(many, Page(sort="-records", filter="T1"), internal=False)
    assert (rows["total"], len(rows["rows"]), rows["rows"][0]["records"]) == (111, 50, 100)
    assert partition_list(many, "t7", Page())["total"] == 10
    problems = list(find_problems(many, [], Thresholds(), now_ms=NOW_MS))
    counts: Any = overview(many, [], problems, [])["partitions"]
    assert counts["total"] == 5_000
    assert time.thread_time() - before_s < 0.5 * slowness()
