"""How long after its acknowledgement a row is in the table."""

import os
import time

from benchmarks.lake.lakes import DELTA, INTERVAL_MS, Lakes, rows_in, wait_for
from benchmarks.support.rounds import Goal, Result, alone, percentile
from storage_engine.client import Admin, NewTopic, Producer
from storage_engine.tools.table import report_line

GOAL = Goal(most=6.0)

_TOPIC = "lake-visible"
_PAUSE_S = 0.02


def visible(lakes: Lakes, steady_s: float) -> Result:
    """Write single rows for so long, and look when each is in the table."""
    root = lakes.folder / "visible"
    servers = {"bootstrap.servers": lakes.brokers.bootstrap_servers}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name=_TOPIC, partitions=1, configs=DELTA)])
    report_line(f"visible: rows are written for {steady_s:.0f} s")
    acknowledged: list[float] = []
    seen: list[float] = []
    with (
        lakes.running(root, cores=os.cpu_count() or 1),
        Producer({**servers, "linger.ms": 0}) as producer,
    ):
        producer.send(_TOPIC, b"first").result()
        wait_for(lambda: rows_in(root / _TOPIC), "the first commit")
        end = time.monotonic() + steady_s
        while time.monotonic() < end or len(seen) < len(acknowledged):
            if time.monotonic() < end:
                producer.send(_TOPIC, b"x" * 100).result()
                acknowledged.append(time.monotonic())
            there = rows_in(root / _TOPIC) - 1
            seen += [time.monotonic()] * (there - len(seen))
            time.sleep(_PAUSE_S)
    lakes.forget(_TOPIC)
    waits = [late - at for at, late in zip(acknowledged, seen, strict=True)]
    return alone(
        f"acknowledged until visible, interval {INTERVAL_MS // 1000} s, P95, s",
        percentile(waits, 95),
        goal=GOAL,
    )
