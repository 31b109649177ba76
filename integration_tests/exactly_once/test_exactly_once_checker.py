"""The judgement that all tests of exactly once share finds each kind of fault, and the list of
cases is what its rules say."""

import pytest

from integration_tests.exactly_once.exactly_once import (
    Row,
    Watched,
    batches_whole,
    delays_s,
    judge,
    prompt,
)
from integration_tests.exactly_once.sink_faults import Case, Fault, Stage, all_cases, why_not
from integration_tests.exactly_once.sink_queries import QUERIES
from integration_tests.keyed_sink import keyed_faults

LAST_IDS = 6


def written() -> dict[int, list[Row]]:
    """Two batches of two partitions; offsets 2 and 6 have markers."""
    return {
        0: [Row(0, b"0/0:a"), Row(1, b"0/1:b"), Row(3, b"1/2:c"), Row(5, b"1/3:d")],
        1: [Row(0, b"0/4,5:e")],
    }


def watching(partitions: dict[int, list[Row]], looks: list[int]) -> dict[int, Watched]:
    made = {partition: Watched() for partition in partitions}
    for partition, rows in partitions.items():
        for row in rows:
            made[partition].note_row(row, 10.0 + row.batch)
    for look in looks:
        made[0].note_end(look)
    return made


def complaints(found: dict[int, list[Row]], looks: tuple[int, ...] = (0, 3, 7)) -> list[str]:
    return judge(found, watching(written(), list(looks)), range(LAST_IDS))


def test_what_is_right_is_not_complained_about():
    assert complaints(written()) == []
    # Where the reader stood between batches does not matter: markers are offsets, too.
    assert complaints(written(), (0, 2, 3, 6, 7)) == []


def test_lost_doubled_and_foreign_ids_are_named():
    lost, doubled, foreign = written(), written(), written()
    del lost[0][1]
    doubled[1].append(Row(2, b"1/0:a"))
    foreign[1].append(Row(2, b"1/77:a"))
    for found, complaint in (
        (lost, "1 ids lost: [1]"),
        (doubled, "1 ids doubled: [0]"),
        (foreign, "1 ids nobody's: [77]"),
    ):
        assert judge(found, watching(found, []), range(LAST_IDS)) == [complaint]


@pytest.mark.parametrize("position", [1, 4, 5])
def test_a_batch_that_was_seen_in_part_is_told(position):
    (complaint,) = complaints(written(), (0, position))
    assert complaint.startswith(f"partition 0: a reader at {position} saw batch ")


def test_batches_out_of_order_are_told():
    found = {0: [Row(0, b"1/2:a"), Row(1, b"0/1:b")], 1: []}
    watched = watching(found, [2])
    assert batches_whole(found, watched) == []
    assert "behind batch 1" in judge(found, watched, (1, 2))[0]


def test_rows_that_move_or_vanish_after_they_were_read_are_told():
    moved, gone = written(), written()
    moved[0][1] = Row(1, b"0/1:other")
    gone[0].pop()
    assert complaints(moved) == ["partition 0: other rows than a reader saw at [1]"]
    assert "partition 0: other rows than a reader saw at [5]" in complaints(gone)


def test_a_reader_that_does_not_read_is_told():
    nothing = {partition: Watched() for partition in written()}
    blind, sleepy = judge(written(), nothing, range(LAST_IDS))
    assert blind == (
        "partition 0: a reader that was there all along never saw 4 of 4 rows: [0, 1, 3, 5]"
    )
    assert sleepy.startswith("partition 1: ")


def test_a_reader_that_is_sent_back_is_told():
    watched = watching(written(), [7])
    watched[1].note_row(Row(5, b"0/9:e"), 1.0)
    watched[1].note_row(Row(4, b"0/9:e"), 1.0)
    assert "partition 1: a reader went back" in judge(written(), watched, range(LAST_IDS))


def test_a_batch_is_as_late_as_its_last_partition():
    watched = watching(written(), [])
    watched[1].seen_at[0] = 12.5
    delays = delays_s(watched, {0: 10.0, 1: 10.5})
    assert delays == {0: 2.5, 1: 0.5}
    (complaint,) = prompt(delays)
    assert complaint == "batch 0 was readable 2.50 s after its commit record, not within 1.0 s"


def test_every_fault_stage_and_query_is_in_the_matrix():
    cases = all_cases()
    assert len(cases) == len(set(map(str, cases)))
    assert {case.fault for case in cases} == set(Fault)
    assert {case.stage for case in cases} == set(Stage)
    assert {case.query for case in cases} == set(QUERIES)
    # Nothing is left out for the query's sake, and who kills drivers and brokers does it always.
    left_out = {
        (fault, stage) for fault in Fault for stage in Stage if why_not(Case(fault, stage, "join"))
    }
    assert len(cases) == len(QUERIES) * (len(Fault) * len(Stage) - len(left_out))
    always = (Fault.DRIVER, Fault.COORDINATOR, Fault.OUTPUT_LEADER, Fault.CONTROLLER)
    assert not {fault for fault, _ in left_out} & set(always)


def test_every_fault_of_the_keyed_sink_comes_with_each_database():
    for database in keyed_faults.DATABASES:
        cases = [case for case in keyed_faults.all_cases() if case.database == database]
        left_out = set(keyed_faults.OF_SERVERS) if database == "sqlite" else set()
        assert {case.fault for case in cases} == set(keyed_faults.Fault) - left_out
        assert {case.stage for case in cases} == set(keyed_faults.Stage)
    chosen = [keyed_faults.sample(seed) for seed in range(400)]
    assert chosen[7] == keyed_faults.sample(7)
    left_to_full = (*keyed_faults.NEEDS_MORE, *keyed_faults.OWN_DRIVER)
    assert {case for each in chosen for case in each} == {
        case
        for case in keyed_faults.all_cases()
        if case.database == "postgresql" and case.fault not in left_to_full
    }
