"""All logs of a broker are due for a scrub after an unclean stop: what it costs to find the next.
R-LOG8."""

from types import SimpleNamespace

from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.broker.upkeep.scrubs import LOOK_AGAIN_MS, Scrubs, ScrubSettings
from storage_engine.core.ids import TopicPartition

LOGS = 300
NOW_MS = 1_000_000


class Replica:
    """The part of a hosted partition that a pass uses."""

    def __init__(self, topic_partition, log):
        self.topic_partition, self.log = topic_partition, log
        self.role = Role.FOLLOWER


class HostedLogs:
    """Partitions with nothing to scrub in them; counts how often one is looked at."""

    def __init__(self):
        self.looks = 0
        self.passes: list[int] = []
        self.known = {TopicPartition("t", n): self.partition(n) for n in range(LOGS)}

    def partition(self, number):
        log = SimpleNamespace(
            cleaning=SimpleNamespace(is_uncleanable=False, is_busy=False),
            repair=SimpleNamespace(next_scrub=lambda offset: self.passes.append(number)),
            # The last partitions are due the longest.
            scrubbed_ms=LOGS - number,
            log_start_offset=0,
            recovery_point=1,
        )
        return Replica(TopicPartition("t", number), log)

    def get(self, tp):
        self.looks += 1
        return self.known.get(tp)

    def __iter__(self):
        for partition in self.known.values():
            self.looks += 1
            yield partition


class At:
    """A clock, and a scheduler whose calls are made by the test."""

    def __init__(self):
        self.at_ms = NOW_MS
        self.soon = []

    def wall_ms(self):
        return self.at_ms

    monotonic_ms = wall_ms

    def call_soon(self, callback):
        self.soon.append(callback)

    def run(self):
        while self.soon:
            self.soon.pop()()


def scrubs_of(logs, at, interval_ms=100_000) -> Scrubs:
    settings = ScrubSettings(broker_id=1, interval_ms=interval_ms, bytes_per_second=1 << 20)
    return Scrubs(
        settings,
        replicas=logs,
        metadata=None,
        transport=None,
        scheduler=at,
        clock=at,
        background=None,
        is_compacting=lambda: False,
    )


def test_each_log_is_looked_at_a_few_times_though_all_of_them_are_due():
    logs, at = HostedLogs(), At()
    scrubs = scrubs_of(logs, at)
    scrubs.begin_due()
    at.run()
    assert logs.passes == list(reversed(range(LOGS))), "the longest due comes first"
    assert logs.looks < 6 * LOGS


def test_a_replica_that_ended_or_failed_while_it_waited_has_no_pass():
    logs, at = HostedLogs(), At()
    scrubs = scrubs_of(logs, at)
    scrubs.begin_due()
    del logs.known[TopicPartition("t", 7)]
    logs.known[TopicPartition("t", 8)].role = Role.FAILED
    logs.known[TopicPartition("t", 9)] = logs.partition(9)
    at.run()
    assert len(logs.passes) == LOGS - 3
    assert not {7, 8, 9} & set(logs.passes)
    at.at_ms += LOOK_AGAIN_MS
    scrubs.begin_due()
    at.run()
    assert logs.passes[LOGS - 3 :] == [9], "the one that came anew is found by the next look"
