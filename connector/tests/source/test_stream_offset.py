"""Stream offsets: what Spark's checkpoint keeps, and what a micro-batch is read from."""

import json
from uuid import UUID

import pytest

from connector.errors import ConnectorError
from connector.source.micro_batch_planning import plan_next
from connector.source.offset_range import OffsetRange
from connector.source.stream_offset import SchemaMark, StreamOffset, ranges_between
from storage_engine.core.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def _ranges(start, end):
    return [
        (each.topic_partition, each.start_offset, each.end_offset)
        for each in ranges_between(start, end)
    ]


def _through_checkpoint(offset):
    return StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))


def test_an_offset_survives_the_checkpoint():
    offset = StreamOffset(positions={T0: 70, T1: 5}, begins={T0: 0, T1: 2})
    assert _through_checkpoint(offset) == offset
    assert offset.to_json() == {"t": {"0": 70, "1": 5}, "@from": {"t": {"0": 0, "1": 2}}}


def test_an_offset_remembers_the_ids_of_its_topics():
    offset = StreamOffset(positions={T0: 70}, begins={T0: 0}, topic_ids={"t": UUID(int=7)})
    assert _through_checkpoint(offset) == offset
    assert offset.to_json()["@ids"] == {"t": "00000000000000000000000000000007"}
    (whole,) = ranges_between(StreamOffset(positions={T0: 0}), offset)
    assert whole.topic_id == UUID(int=7)


def test_a_query_keeps_its_name_from_batch_to_batch():
    initial = StreamOffset(positions={T0: 5}, query="q1")
    planned = plan_next(
        _through_checkpoint(initial), latest={T0: 9}, earliest={}, max_offsets=None, topic_ids={}
    )
    assert _through_checkpoint(planned.end).query == "q1"


def test_a_start_in_another_topic_of_the_same_name_does_not_count():
    start = StreamOffset(positions={T0: 3}, begins={T0: 0}, topic_ids={"t": UUID(int=1)})
    end = StreamOffset(positions={T0: 20}, begins={T0: 9}, topic_ids={"t": UUID(int=2)})
    assert _ranges(start, end) == [(T0, 9, 20)]


def test_ids_that_are_none_are_refused_in_one_line():
    encoded = {"t": {"0": 1}, "@from": {"t": {"0": 0}}, "@ids": {"t": "x"}}
    with pytest.raises(ConnectorError, match=r"^\[BAD_CHECKPOINT\] .* topic ids [^\n]*$"):
        StreamOffset.from_json(encoded)


def test_equal_offsets_are_equal_texts_whatever_their_order():
    one = StreamOffset(positions={T0: 1, T1: 2}, begins={T1: 0, T0: 0})
    other = StreamOffset(positions={T1: 2, T0: 1}, begins={T0: 0, T1: 0})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_the_initial_offset_is_recognised():
    assert _through_checkpoint(StreamOffset(positions={T0: 3})).is_initial


def test_batch_0_is_read_from_the_start_it_was_planned_from_when_latest_has_moved_on():
    planned = plan_next(
        StreamOffset(positions={T0: 5}), latest={T0: 9}, earliest={}, max_offsets=None, topic_ids={}
    )
    asked_again_after_restart = StreamOffset(positions={T0: 50})
    assert _ranges(asked_again_after_restart, _through_checkpoint(planned.end)) == [(T0, 5, 9)]


def test_an_empty_batch_0_still_pins_the_start_for_batch_1():
    initial = StreamOffset(positions={T0: 5})
    empty = plan_next(initial, latest={T0: 5}, earliest={}, max_offsets=None, topic_ids={}).end
    assert not empty.is_initial
    following = plan_next(
        _through_checkpoint(empty), latest={T0: 50}, earliest={}, max_offsets=None, topic_ids={}
    ).end
    assert _ranges(empty, following) == [(T0, 5, 50)]


def test_a_planned_offset_that_spark_skipped_loses_nothing():
    committed = StreamOffset(positions={T0: 10}, begins={T0: 0})
    skipped = StreamOffset(positions={T0: 20}, begins={T0: 10})
    last = StreamOffset(positions={T0: 30}, begins={T0: 20})
    assert _ranges(skipped, last) == [(T0, 20, 30)]
    assert _ranges(committed, last) == [(T0, 10, 30)]


def test_a_partition_that_begins_again_is_read_from_its_new_beginning():
    start = StreamOffset(positions={T0: 100}, begins={T0: 90})
    end = StreamOffset(positions={T0: 20}, begins={T0: 0})
    assert _ranges(start, end) == [(T0, 0, 20)]


def test_keys_of_later_versions_are_skipped():
    encoded = {"t": {"0": 1}, "@from": {"t": {"0": 0}}, "@later": {"t": "x"}}
    assert StreamOffset.from_json(encoded).positions == {T0: 1}


def test_an_offset_of_another_format_is_refused_in_one_line():
    with pytest.raises(ConnectorError, match=r"^\[BAD_CHECKPOINT\] [^\n]*$"):
        StreamOffset.from_json({"logOffset": 3})


def test_a_range_knows_its_size_and_shows_itself():
    offset_range = OffsetRange(topic_partition=T0, start_offset=3, end_offset=5)
    assert len(offset_range) == 2
    assert str(offset_range) == "t-0 [3, 5)"


def test_the_schemas_of_avro_stay_with_the_offset():
    marks = {"key": SchemaMark("t-key", 1, 3), "value": SchemaMark("t-value", 2, 5)}
    offset = StreamOffset(positions={}, begins={}, schemas=marks)
    encoded = offset.to_json()
    assert encoded["@schemas"]["value"] == {"subject": "t-value", "version": 2, "id": 5}
    assert StreamOffset.from_json(encoded) == offset


@pytest.mark.parametrize("wrong", [7, {"value": 1}, {"value": {"subject": "s", "version": "x"}}])
def test_schemas_that_are_not_valid_are_one_line(wrong):
    with pytest.raises(ConnectorError, match=r"\[BAD_CHECKPOINT\] the checkpoint has schemas"):
        StreamOffset.from_json({"@from": {}, "@schemas": wrong})
