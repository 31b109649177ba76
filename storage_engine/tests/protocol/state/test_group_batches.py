"""The group coordinator's log as record batches, with transactions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.groups.records import GroupContent, OffsetKey, OffsetRecord
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.protocol.records.control_record import encode_marker
from storage_engine.protocol.records.record_batch import patch, patch_producer
from storage_engine.protocol.state.group_batches import encode_entries, new_content, replay
from storage_engine.tests.core.groups.group_bench import content_of
from storage_engine.tests.sampling import examples

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

steps = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from([T0, T1]), st.integers(0, 99) | st.none(), st.sampled_from([-1, 1, 2])
        ),
        st.tuples(st.sampled_from([1, 2]), st.booleans()),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(steps, st.randoms(use_true_random=False))
def test_a_log_with_transactions_is_read_in_pieces_as_at_once(history, random):
    log, model = [], []
    for number, step in enumerate(history):
        if len(step) == 2:
            producer_id, commits = step
            batch = encode_marker(producer_id, 0, TransactionMarker(commits, 0), timestamp_ms=0)
            model.append(step)
        else:
            tp, offset, producer_id = step
            if offset is None:
                producer_id = -1  # tombstones are written outside transactions
            record = None if offset is None else OffsetRecord(offset=offset, commit_ms=0)
            key = OffsetKey("g", tp)
            ((_, batch),) = encode_entries([(key, record)], now_ms=0, part_bytes=1 << 20)
            if producer_id > 0:
                patch_producer(
                    batch,
                    0,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                    transactional=True,
                )
            model.append((key, record, producer_id if producer_id > 0 else None))
        patch(batch, 0, base_offset=number, leader_epoch=0)
        log.append(bytes(batch))
    at_once, in_pieces = new_content(), new_content()
    replay(b"".join(log), at_once)
    position = 0
    while position < len(log):
        end = random.randint(position + 1, len(log))
        replay(b"".join(log[position:end]), in_pieces)
        position = end
    expected: GroupContent = content_of(model)
    assert at_once == in_pieces == expected
