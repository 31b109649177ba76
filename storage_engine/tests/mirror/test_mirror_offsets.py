"""Offsets of a copy: never behind a record that was not read, exact where it is known, also from
what a compacted topic has kept."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage_engine.core.ids import TopicPartition
from storage_engine.mirror.offsets import (
    PER_LEVEL,
    DeliveredBatch,
    OffsetMap,
    OffsetRun,
    joined,
    runs_of,
    slot_of,
)
from storage_engine.mirror.progress import Copy, MirrorProgress, Moved, ProgressError, TopicIds
from storage_engine.protocol.records.copied_batches import Span
from storage_engine.tests.sampling import examples

GAP = st.sampled_from([0, 0, 0, 1, 5])
COPY = Copy("east", TopicPartition("orders", 3), TopicPartition("east.orders", 3))
IDS = TopicIds("source id", "target id")


@st.composite
def copies(draw):
    """Transactions of a mirror: what is delivered in each, and where each record has gone."""
    source = draw(st.integers(0, 100))
    target = draw(st.integers(0, 100))
    places: list[tuple[int, int]] = []
    transactions = []
    for _ in range(draw(st.integers(1, 12))):
        delivered = []
        for _ in range(draw(st.integers(1, 3))):
            target += draw(GAP)
            spans = []
            row = 0
            for _ in range(draw(st.integers(1, 3))):
                source += draw(GAP)
                count = draw(st.integers(1, 4))
                spans.append(Span(source, row, count))
                places += [(source + n, target + row + n) for n in range(count)]
                row += count
                source += count
            told = draw(st.sampled_from([True, True, True, False]))
            delivered.append(DeliveredBatch(target if told else -1, tuple(spans)))
            target += row
        source += draw(GAP)
        transactions.append((delivered, source))
        target += 1  # the marker
    return transactions, places


def loaded(rows) -> MirrorProgress:
    progress = MirrorProgress()
    progress.load(rows)
    return progress


@settings(max_examples=examples(120), deadline=None)
@given(copies(), st.sampled_from([1, 2, 64]), st.randoms(use_true_random=False))
def test_no_record_is_left_out_behind_a_translated_offset(made, limit, random):
    transactions, places = made
    runs = OffsetMap()
    for delivered, _ in transactions:
        random.shuffle(delivered)
        for run in joined(runs_of(delivered, target_end=runs.target_end), limit):
            runs.put(runs.count + 1, run)
    for offset in range(places[0][0] - 2, places[-1][0] + 3):
        translated = runs.translate(offset)
        ahead = [target for source, target in places if source >= offset and target < translated]
        assert not ahead, f"{offset} -> {translated} leaves out {ahead}"


@settings(max_examples=examples(150), deadline=None)
@given(copies())
def test_the_translated_offset_is_exact_where_all_is_known(made):
    transactions, places = made
    runs = OffsetMap()
    for delivered, _ in transactions:
        told = [batch for batch in delivered if batch.base_offset >= 0]
        for run in joined(runs_of(told, target_end=runs.target_end)):
            runs.put(runs.count + 1, run)
    unknown = {
        source
        for delivered, _ in transactions
        for base, spans in delivered
        if base < 0
        for start, _, count in spans
        for source in range(start, start + count)
    }
    for offset in {source for source, _ in places} - unknown:
        ((expected,)) = [target for source, target in places if source == offset]
        assert runs.translate(offset) == expected


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


def test_many_runs_are_kept_in_few_and_the_last_ones_exactly():
    runs = OffsetMap()
    count = 1 << 16
    for number in range(1, count + 1):
        runs.put(number, OffsetRun(10 * number, 10 * number + 10, 11 * number, 10))
    assert len(runs) <= PER_LEVEL * 17 + 1
    for number in range(count - 2 * PER_LEVEL + 1, count + 1):
        assert runs.translate(10 * number + 3) == 11 * number + 3
    for behind in (300, 1_000, 10_000, 50_000):
        offset = 10 * (count - behind)
        translated = runs.translate(offset)
        assert translated is not None
        again = 11 * (count - behind) - translated
        assert 0 <= again <= 11 * behind * 2 / PER_LEVEL + 11
    assert runs.translate(0) == 11


@given(st.integers(2, 1 << 40), st.integers(1, 1 << 20))
@example(2, 1)
def test_a_slot_is_taken_only_by_a_run_of_the_same_level(number, later):
    slot = slot_of(number)
    assert 0 <= slot.place < PER_LEVEL
    step = PER_LEVEL << (slot.level + 1)
    assert slot_of(number + step) == slot or number + step == 1
    if slot_of(number + later) == slot:
        assert later % step == 0


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
