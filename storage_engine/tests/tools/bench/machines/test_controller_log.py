"""What is read from a controller's log about the loss of a host."""

from datetime import UTC, datetime

from benchmarks.machines.controller_log import last_election_s, noticed

LOST = frozenset({1, 2})
FIRST = "2026-01-02 03:04:05,100 INFO controller has brokers=[2, 3, 4]\n"
LAST = "2026-01-02 03:04:07,300 INFO controller has brokers=[3, 4]\n"
ELECTED = (
    "2026-01-02T03:04:07.800Z broker=3 elect partition=t-1 leader=4\n"
    "2026-01-02T03:04:09.000Z broker=3 became follower partition=t-1 leader=4\n"
)


def test_nothing_is_noticed_while_one_of_them_is_known():
    assert noticed("", LOST) is None
    assert noticed(FIRST, LOST) is None


def test_the_first_and_the_last_notice_are_told_apart():
    found = noticed(FIRST + "a line without a time\n" + LAST, LOST)
    assert found is not None
    assert round(found.last_s - found.first_s, 3) == 2.2


def test_the_last_election_is_told_and_no_earlier_moment_than_asked_for(tmp_path):
    file = tmp_path / "state-change.log"
    file.write_text(ELECTED)
    elected_s = datetime(2026, 1, 2, 3, 4, 7, 800_000, tzinfo=UTC).timestamp()
    assert last_election_s(file, 0.0) == elected_s
    assert last_election_s(file, elected_s + 1) == elected_s + 1


def test_a_new_controller_notices_when_it_has_loaded():
    loaded = "2026-01-02 03:04:07,000 INFO controller loaded brokers=[3, 4] topics=1 partitions=2\n"
    found = noticed(loaded, LOST)
    assert found is not None
    assert found.first_s == found.last_s


def test_brokers_that_come_back_are_no_second_notice():
    back = "2026-01-02 03:05:00,000 INFO controller has brokers=[1, 2, 3, 4]\n"
    assert noticed(FIRST + LAST + back, LOST) == noticed(FIRST + LAST, LOST)
