"""What is read from a controller's log about the loss of a host."""

from benchmarks.machines.controller_log import noticed

LOST = frozenset({1, 2})
FIRST = "2026-01-02 03:04:05,100 INFO controller has brokers=[2, 3, 4]\n"
ELECTED = "2026-01-02 03:04:05,900 INFO elect partition=t-0 leader=3\n"
LAST = "2026-01-02 03:04:07,300 INFO controller has brokers=[3, 4]\n"
ELECTED_AFTER = "2026-01-02 03:04:07,800 INFO elect partition=t-1 leader=4\n"


def test_nothing_is_noticed_while_one_of_them_is_known():
    assert noticed("", LOST) is None
    assert noticed(FIRST + ELECTED, LOST) is None


def test_the_first_and_the_last_notice_and_the_last_election_are_told_apart():
    found = noticed(FIRST + ELECTED + "a line without a time\n" + LAST + ELECTED_AFTER, LOST)
    assert found is not None
    assert round(found.last_s - found.first_s, 3) == 2.2
    assert round(found.elected_s - found.last_s, 3) == 0.5


def test_elections_that_were_all_before_the_last_notice_end_with_it():
    found = noticed(FIRST + ELECTED + LAST, LOST)
    assert found is not None
    assert found.elected_s == found.last_s


def test_a_new_controller_notices_when_it_has_loaded():
    loaded = "2026-01-02 03:04:07,000 INFO controller loaded brokers=[3, 4] topics=1 partitions=2\n"
    found = noticed(loaded, LOST)
    assert found is not None
    assert found.first_s == found.last_s


def test_brokers_that_come_back_are_no_second_notice():
    back = "2026-01-02 03:05:00,000 INFO controller has brokers=[1, 2, 3, 4]\n"
    assert noticed(FIRST + LAST + back, LOST) == noticed(FIRST + LAST, LOST)
