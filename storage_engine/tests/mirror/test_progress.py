"""The progress of a mirror: what a compacted topic keeps of it says the same."""

from hypothesis import given, settings

from storage_engine.core.ids import TopicPartition
from storage_engine.mirror.offsets import (
    OffsetRun,
    runs_of,
)
from storage_engine.mirror.progress import Copy, MirrorProgress, Moved, ProgressError, TopicIds
from storage_engine.tests.mirror.copied import copies
from storage_engine.tests.sampling import examples

COPY = Copy("east", TopicPartition("orders", 3), TopicPartition("east.orders", 3))
IDS = TopicIds("source id", "target id")


def loaded(rows) -> MirrorProgress:
    progress = MirrorProgress()
    progress.load(rows)
    return progress


@settings(max_examples=examples(90), deadline=None)
@given(copies())
def test_what_compaction_leaves_of_the_topic_says_the_same(made):
    transactions, places = made
    progress = MirrorProgress()
    progress.begin(COPY, IDS, 0)
    topic: dict[bytes, bytes] = {}
    for delivered, next_offset in transactions:
        target_end = progress.target_end(COPY)
        moved = {COPY: Moved(next_offset, runs_of(delivered, target_end=target_end))}
        for key, value in progress.rows(moved):
            # As a log that is compacted: the newest of a key, at its place.
            topic.pop(key, None)
            topic[key] = value
        progress.committed(moved)
    again = loaded(topic.items())
    known = again.of(COPY, IDS)
    assert known is not None and known.next_offset == transactions[-1][1]
    assert known.runs.count == progress.of(COPY, IDS).runs.count
    for offset in range(places[0][0] - 2, places[-1][0] + 3):
        assert again.translate(COPY, offset) == progress.translate(COPY, offset)


def test_a_topic_that_was_created_again_begins_anew():
    progress = MirrorProgress()
    progress.begin(COPY, IDS, 0)
    moved = {COPY: Moved(50, [OffsetRun(0, 50, 0, 50)])}
    rows = list(progress.rows(moved))
    progress.committed(moved)
    new = TopicIds("another source id", "target id")
    assert progress.of(COPY, new) is None
    progress.begin(COPY, new, 7)
    assert progress.translate(COPY, 20) is None
    moved = {COPY: Moved(9, [OffsetRun(7, 9, 51, 2)])}
    rows += progress.rows(moved)
    again = loaded(rows)
    assert again.of(COPY, IDS) is None
    assert again.of(COPY, new).next_offset == 9
    assert again.translate(COPY, 8) == 52


def test_a_record_of_somebody_else_is_one_line():
    for key, value in ((b"{}", b"{}"), (b"text", b"{}"), (b"[]", b"1")):
        try:
            loaded([(key, value)])
        except ProgressError as error:
            assert "give the mirror another --name" in str(error)
        else:
            raise AssertionError("it was taken")
