"""What the job prints is understood, and a job that fails is told."""

import json
import time

import pytest

from examples.flights import stream
from examples.flights.stream import Stream, StreamError, StreamProgress

LINE = {
    "batch": 3,
    "rows": 7,
    "late": 0,
    "milliseconds": 900,
    "watermark": "2014-01-02T00:00:00.000Z",
}


def progress(*read):
    return StreamProgress(batches=[stream._batch({**LINE, "read": list(read)})])


def test_offsets_are_understood_as_objects_and_as_text():
    flights = {"flights": {"0": 5}, "@from": {"flights": {"0": 0}}}
    batch = stream._batch({**LINE, "read": [flights, json.dumps({"weather": {"0": 2}}), None]})
    assert batch.read == {"flights": {"0": 5}, "weather": {"0": 2}}


def test_the_stream_is_through_when_every_partition_is_read_and_every_hour_written():
    ends = {"flights": {"0": 5, "1": 0}, "weather": {"0": 2}}
    weather = {"weather": {"0": 2}}
    whole = progress({"flights": {"0": 5, "1": 0}}, weather)
    assert whole.is_through(ends, "2014-01-02T00:00:00.000Z")
    assert not whole.is_through(ends, "2014-01-03T00:00:00.000Z")
    assert not progress({"flights": {"0": 4, "1": 0}}, weather).is_through(ends, "")
    assert not progress({"flights": {"0": 5, "1": 0}}).is_through(ends, "")
    assert not StreamProgress().is_through(ends, "")


def test_a_job_that_fails_is_told_with_its_last_words(tmp_path, monkeypatch):
    job = tmp_path / "job.py"
    job.write_text("raise ValueError('the reason')")
    monkeypatch.setattr(stream, "_JOB", job)
    running = Stream("127.0.0.1:1", tmp_path / "checkpoint", tmp_path / "log")
    try:
        deadline = time.monotonic() + 30
        with pytest.raises(StreamError, match=r"status 1: ValueError: the reason"):
            while time.monotonic() < deadline:
                running.check()
                time.sleep(0.01)
    finally:
        running.stop()


def test_stop_leaves_no_process_behind(tmp_path, monkeypatch):
    job = tmp_path / "job.py"
    job.write_text("import time\ntime.sleep(600)")
    monkeypatch.setattr(stream, "_JOB", job)
    running = Stream("127.0.0.1:1", tmp_path / "checkpoint", tmp_path / "log")
    running.check()
    running.stop()
    with pytest.raises(StreamError):
        running.check()
