"""How far a group is behind, from where it was seen: no record's timestamp is needed."""

from headrace_console.cluster.group_marks import GroupMarks, GroupReading
from storage_engine.core.ids import TopicPartition

TP = TopicPartition("t", 0)


class Seen:
    """A group that is looked at every two seconds."""

    def __init__(self) -> None:
        self.marks = GroupMarks()
        self.at_ms = 1_000_000

    def look(self, committed: int, end_offset: int) -> int:
        """How far it is behind then."""
        self.at_ms += 2_000
        self.marks.note("g", {TP: GroupReading(committed, end_offset)}, self.at_ms)
        return self.marks.behind_ms("g", TP, self.at_ms)

    def told(self, written_ms: int | None, *, only_markers: bool = False) -> None:
        for key in self.marks.to_ask(10):
            self.marks.answered(key, written_ms, only_markers=only_markers)


def test_a_group_that_keeps_up_is_behind_by_a_look_at_most() -> None:
    seen = Seen()
    behind = [seen.look(100 * look, 100 * look + 50) for look in range(50)]
    assert max(behind) <= 2_000
    assert seen.look(9_000, 9_000) == 0
    assert not seen.marks.is_sure("g", TP)


def test_a_group_that_stands_still_is_behind_since_then() -> None:
    seen = Seen()
    assert [seen.look(10, 10 + look) for look in range(1, 5)] == [0, 2_000, 4_000, 6_000]
    assert seen.marks.is_sure("g", TP)


def test_a_group_that_stays_a_minute_behind_is_told_so_all_the_time() -> None:
    seen = Seen()
    behind = [seen.look(max(0, 10 * look - 300), 10 * look) for look in range(1, 200)]
    assert min(behind[40:]) >= 58_000 and max(behind) <= 64_000


def test_a_console_that_was_just_started_takes_the_time_of_the_first_unread_record() -> None:
    seen = Seen()
    seen.look(10, 20)
    seen.told(seen.at_ms - 500_000)
    assert seen.marks.behind_ms("g", TP, seen.at_ms) == 500_000
    assert not seen.marks.is_sure("g", TP), "records may have times of their own"
    assert seen.look(10, 20) == 502_000
    assert seen.marks.is_sure("g", TP)
    # What it took is counted from when it was seen, whatever that time was.
    assert seen.look(20, 30) == 4_000


def test_a_transaction_marker_that_is_never_committed_is_no_lag_until_more_is_written() -> None:
    seen = Seen()
    seen.look(10, 11)
    seen.look(10, 11)
    seen.told(seen.at_ms - 100_000, only_markers=True)
    assert seen.look(10, 11) == 0
    seen.look(10, 15)
    assert seen.look(10, 15) == 2_000


def test_groups_that_are_gone_are_forgotten() -> None:
    seen = Seen()
    seen.look(10, 11)
    seen.marks.keep_only([])
    assert seen.look(10, 11) == 0
