"""Records become batches in their order, within their size, when they are due (R-CLI1, R-CLI7)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.client.changed import Changed
from storage_engine.client.producer.accumulator import Accumulator
from storage_engine.client.producer.producer_batch import record_bytes
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.sampling import examples

BATCH_BYTES = 400
LINGER_MS = 10

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(0, 500)),
        st.tuples(st.just("time"), st.integers(0, 25), st.just(0)),
        st.tuples(st.just("busy"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=examples(50))
@given(steps)
def test_batches_leave_in_order_full_or_due_and_nothing_stays_after_a_flush(steps):
    accumulator = Accumulator(Changed(), batch_bytes=BATCH_BYTES, linger_ms=LINGER_MS)
    added: dict[TopicPartition, list[int]] = {}
    taken: dict[TopicPartition, list[int]] = {}
    busy: set[TopicPartition] = set()
    now_ms = 0
    flushing = False

    def take():
        nonlocal flushing
        for batch in accumulator.take(now_ms, lambda tp: tp in busy):
            assert len(batch.records) == 1 or batch.size <= BATCH_BYTES
            if not batch.closed:
                assert batch.tp not in busy
                assert flushing or now_ms - batch.begun_ms >= LINGER_MS
            taken.setdefault(batch.tp, []).extend(record[3] for record in batch.records)
        flushing = flushing and bool(accumulator)
        assert accumulator.due_in_ms(now_ms, lambda tp: tp in busy) != 0

    for number, (step, which, size) in enumerate(steps):
        tp = TopicPartition("t", which)
        match step:
            case "add":
                value = bytes(size)
                bound = record_bytes(None, value, [])
                batch, _ = accumulator.room_for(tp, bound, now_ms)
                batch.records.append((None, value, [], number))
                batch.size += bound
                accumulator.filled(batch)
                added.setdefault(tp, []).append(number)
            case "time":
                now_ms += which
                take()
            case "busy":
                busy ^= {tp}
            case "flush":
                accumulator.flush()
                flushing = bool(accumulator)
                take()
    busy.clear()
    accumulator.flush()
    flushing = True
    take()
    assert taken == added
    assert not accumulator


def test_nothing_is_due_for_a_batch_that_a_handler_keeps_from_its_queue():
    accumulator = Accumulator(Changed(), batch_bytes=BATCH_BYTES, linger_ms=LINGER_MS)
    tp = TopicPartition("t", 0)
    queue = accumulator.queue_behind(tp)
    # Here a signal handler waits, and the loop asks meanwhile.
    assert accumulator.due_in_ms(0, lambda _: False) is None
    batch, is_news = accumulator.room_for(tp, 1, 0)
    assert is_news and list(queue) == [batch]
    assert accumulator.due_in_ms(0, lambda _: False) == LINGER_MS
