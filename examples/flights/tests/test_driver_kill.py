"""The driver is killed once, when a micro-batch is under way."""

from examples.flights.driver_kill import KILL_AT, DriverKill
from examples.flights.stream import Batch, StreamProgress

BATCH = Batch(number=0, rows=1, late=0, milliseconds=1, watermark_ms=0, read={})


class Query:
    """Records what was done to it."""

    def __init__(self):
        self.progress = StreamProgress(starts=1)
        self.under_way: int | None = 3
        self.kills = 0

    def batch_under_way(self):
        return self.under_way

    def kill_and_start_again(self):
        self.kills += 1


def test_it_is_killed_once_with_enough_loaded_and_a_batch_done_and_another_under_way():
    query, told = Query(), list[str]()
    kill = DriverKill(query, told.append)
    kill.step(KILL_AT)
    query.progress.batches.append(BATCH)
    kill.step(KILL_AT - 0.1)
    query.under_way = None
    kill.step(KILL_AT)
    assert query.kills == 0
    query.under_way = 4
    kill.step(KILL_AT)
    kill.step(KILL_AT)
    assert (query.kills, kill.again_at) == (1, None)
    assert told == ["Spark's driver killed with SIGKILL, in micro-batch 4"]
    query.progress.starts += 1
    kill.step(1.0)
    assert kill.over
    assert (
        dict(kill.rows())["driver killed"] == "in micro-batch 4, which the next driver wrote again"
    )


def test_at_the_end_it_is_killed_in_any_case():
    query = Query()
    query.progress.batches.append(BATCH)
    query.under_way = None
    kill = DriverKill(query, lambda text: None)
    assert list(kill.rows()) == []
    kill.step(1.0, last_chance=True)
    assert query.kills == 1
    assert dict(kill.rows())["driver killed"] == "between micro-batches"
