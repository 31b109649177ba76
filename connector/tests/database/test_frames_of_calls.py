"""Several frames of one micro-batch for one table."""

from types import SimpleNamespace
from uuid import UUID

import pytest
from pyspark.errors import PySparkAttributeError

from connector.database.frames_of_calls import FramesOfCalls, MicroBatchCall, call_of
from connector.errors import ConnectorError
from connector.task_properties import APPLICATION, BATCH_ID, ROOT_EXECUTION

PLACE = ("url", "t", "", "query")
FIRST, REPEATED = MicroBatchCall("7", UUID(int=1)), MicroBatchCall("7", UUID(int=2))
NEXT = MicroBatchCall("8", UUID(int=3))
SECOND = r"^\[BATCH_ID_TAKEN\] this is a second frame for the table 't' in micro-batch 7, "


def written(
    frames: FramesOfCalls, call: MicroBatchCall | None, batch: int = 7, place=PLACE
) -> None:
    with frames.only_one(place, batch, call):
        pass


def test_each_call_writes_one_frame_of_a_place():
    frames = FramesOfCalls()
    for call in (FIRST, REPEATED):
        written(frames, call)
        with pytest.raises(ConnectorError, match=SECOND):
            written(frames, call)
        written(frames, call, place=("url", "t", "rejected", "query"))
    written(frames, NEXT, batch=8)


def test_a_second_frame_does_not_come_in_while_the_first_is_written():
    frames = FramesOfCalls()
    with (
        frames.only_one(PLACE, 7, FIRST),
        pytest.raises(ConnectorError, match=SECOND),
        frames.only_one(PLACE, 7, FIRST),
    ):
        raise AssertionError("it came in")


@pytest.mark.parametrize("is_new", [True, False])
def test_a_frame_that_failed_may_be_tried_again(is_new):
    frames = FramesOfCalls()
    if not is_new:
        written(frames, FIRST)
    with pytest.raises(KeyError), frames.only_one(PLACE, 7, REPEATED):
        raise KeyError
    written(frames, REPEATED)
    with pytest.raises(ConnectorError, match=SECOND):
        written(frames, REPEATED)


def test_a_number_of_another_micro_batch_is_refused():
    frames = FramesOfCalls()
    written(frames, FIRST, batch=0)
    with pytest.raises(ConnectorError, match=r"by micro-batch 7, and this is 8: pass on the num"):
        written(frames, NEXT, batch=0)


def test_a_frame_outside_of_a_micro_batch_is_a_repetition_each_time():
    frames = FramesOfCalls()
    for _ in range(2):
        written(frames, None)


def test_the_call_is_what_spark_says_in_this_thread():
    told = {BATCH_ID: "7", ROOT_EXECUTION: "30"} | dict.fromkeys(APPLICATION, "1")
    context = SimpleNamespace(getLocalProperty=told.get)
    frame = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    first = call_of(frame)
    assert first is not None and first.micro_batch == "7"
    told[ROOT_EXECUTION] = "31"
    again = call_of(frame)
    assert again is not None and again.attempt != first.attempt
    del told[BATCH_ID]
    assert call_of(frame) is None


def test_spark_connect_says_no_call():
    class Session:
        @property
        def sparkContext(self):
            raise PySparkAttributeError("not with Spark Connect")

    assert call_of(SimpleNamespace(sparkSession=Session())) is None
