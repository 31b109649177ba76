"""Offsets of a copy: never behind a record that was not read, exact where it is known."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage_engine.mirror.offsets import (
    PER_LEVEL,
    OffsetMap,
    OffsetRun,
    joined,
    runs_of,
    slot_of,
)
from storage_engine.tests.mirror.copied import copies
from storage_engine.tests.sampling import examples


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
