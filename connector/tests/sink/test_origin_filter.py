"""Which rows are dropped by their origin, compared with the same in plain Python."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.errors import ConnectorError, RowError
from connector.options.sink_options import parse_sink_options
from connector.sink.origin_filter import OriginFilter
from storage_engine.core.ids import TopicPartition

OPTIONS = parse_sink_options(
    {"bootstrap.servers": "h:1", "topic": "t", "sinkId": "s", "idempotentKey": "From,part,at"}
).origin

SCHEMA = pa.schema(
    [("FROM", pa.string()), ("value", pa.string()), ("part", pa.int32()), ("at", pa.int64())]
)

ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 12)), max_size=30
)
COMMITTED = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["id:a", "id:b"]), st.integers(0, 3)),
    st.integers(0, 12),
)


def source_of(topic):
    return f"id:{topic}"


def batch(rows):
    """Each with its number as its value."""
    topics, partitions, offsets = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [topics, [str(number) for number in range(len(rows))], partitions, offsets]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)],
                           schema=SCHEMA)  # fmt: skip


@given(st.lists(ROWS, max_size=3), COMMITTED)
def test_what_the_sink_has_is_dropped_and_the_highest_of_the_rest_is_known(batches, committed):
    judge = OriginFilter(OPTIONS, committed, source_of)
    highest: dict[TopicPartition, int] = {}
    dropped = 0
    for rows in batches:
        fresh = judge.fresh(batch(rows))
        wanted = []
        for number, (topic, partition, offset) in enumerate(rows):
            source = TopicPartition(source_of(topic), partition)
            if offset > committed.get(source, -1):
                wanted.append(str(number))
                highest[source] = max(offset, highest.get(source, -1))
        assert fresh.schema.names == ["value"]
        assert fresh.column("value").to_pylist() == wanted
        dropped += len(rows) - len(wanted)
    assert judge.highest == highest
    assert judge.dropped == dropped, "for the log"


def test_a_slice_of_a_record_batch_is_judged_by_its_own_rows():
    judge = OriginFilter(OPTIONS, {TopicPartition("id:a", 0): 4}, source_of)
    rows = batch([("a", 0, offset) for offset in range(10)])
    assert judge.fresh(rows.slice(3, 3)).column("value").to_pylist() == ["5"]
    assert judge.highest == {TopicPartition("id:a", 0): 5}


def test_each_topic_is_looked_up_once():
    asked = []

    def noted(topic):
        asked.append(topic)
        return source_of(topic)

    judge = OriginFilter(OPTIONS, {}, noted)
    for _ in range(3):
        judge.fresh(batch([("a", 0, 1), ("b", 0, 1)]))
    assert asked == ["a", "b"]
    assert judge.sources == {"a": "id:a", "b": "id:b"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", 0, None), r"^\[NULL_ORIGIN\] 1 of 2 rows have null in the column 'at'"),
        ((None, 0, 0), r"^\[NULL_ORIGIN\] 1 of 2 rows have null in the column 'from'"),
        (("a", -1, 0), r"^\[BAD_ORIGIN\]"),
        (("a", 0, -1), r"^\[BAD_ORIGIN\]"),
    ],
)
def test_a_row_without_an_origin_is_an_error(row, message):
    with pytest.raises(RowError, match=message):
        OriginFilter(OPTIONS, {}, source_of).fresh(batch([("a", 0, 0), row]))


def test_rows_that_are_dropped_with_a_committed_batch_must_be_among_what_the_sink_has():
    committed = {TopicPartition("id:a", 0): 4}
    judge = OriginFilter(OPTIONS, committed, source_of)
    judge.check_committed(batch([("a", 0, 4), ("a", 0, 3)]))
    # A source of which the sink knows nothing: the batch may be older than the key.
    judge.check_committed(batch([("b", 0, 9), ("a", 1, 9)]))
    with pytest.raises(ConnectorError, match=r"^\[CHECKPOINT_REWOUND\] .* from a-0 at offset 5:"):
        judge.check_committed(batch([("a", 0, 5)]))
