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
WATERMARK_MS = 1_388_620_800_000


def progress(*read):
    return StreamProgress(batches=[stream._batch({**LINE, "read": list(read)})])


def test_offsets_are_understood_as_objects_and_as_text():
    flights = {"flights": {"0": 5}, "@from": {"flights": {"0": 0}}}
    batch = stream._batch({**LINE, "read": [flights, json.dumps({"weather": {"0": 2}}), None]})
    assert batch.read == {"flights": {"0": 5}, "weather": {"0": 2}}


def test_the_stream_has_read_all_when_every_partition_is_at_its_end():
    ends = {"flights": {"0": 5, "1": 0}, "weather": {"0": 2}}
    assert progress({"flights": {"0": 5, "1": 0}, "weather": {"0": 2}}).has_read(ends)
    assert not progress({"flights": {"0": 4, "1": 0}, "weather": {"0": 2}}).has_read(ends)
    assert not progress({"flights": {"0": 5, "1": 0}}).has_read(ends)
    assert not StreamProgress().has_read(ends)


def test_hours_are_written_when_the_watermark_is_at_their_end():
    assert progress().has_written(WATERMARK_MS)
    assert not progress().has_written(WATERMARK_MS + 1)
    assert not StreamProgress().has_written(0)


def test_a_job_that_fails_is_told_with_its_last_words(tmp_path, monkeypatch):
    job = tmp_path / "job.py"
    job.write_text("raise ValueError('the reason')")
    monkeypatch.setattr(stream, "_JOB", job)
    running = Stream("127.0.0.1:1", tmp_path / "checkpoint", tmp_path / "log")
    try:
        deadline = time.monotonic() + 60
        with pytest.raises(StreamError, match=r"status 1: ValueError: the reason"):
            while time.monotonic() < deadline:
                running.check()
                time.sleep(0.01)
    finally:
        running.stop()


def test_the_micro_batch_under_way_is_what_the_checkpoint_has_planned_and_not_done(tmp_path):
    checkpoint = tmp_path / "checkpoint"
    running = object.__new__(Stream)
    running._checkpoint = checkpoint
    assert running.batch_under_way() is None
    for log, number in (("offsets", 0), ("commits", 0), ("offsets", 1)):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
        (checkpoint / log / str(number)).touch()
        (checkpoint / log / f".{number}.crc").touch()
    assert running.batch_under_way() == 1
    (checkpoint / "commits" / "1").touch()
    assert running.batch_under_way() is None


def test_a_job_that_is_killed_starts_again_and_tells_of_both_starts(tmp_path, monkeypatch):
    job = tmp_path / "job.py"
    job.write_text("import time\nprint('{\"started\": 1}', flush=True)\ntime.sleep(600)")
    monkeypatch.setattr(stream, "_JOB", job)
    running = Stream("127.0.0.1:1", tmp_path / "checkpoint", tmp_path / "log")
    try:
        for starts in (1, 2):
            deadline = time.monotonic() + 60
            while running.progress.starts < starts:
                assert time.monotonic() < deadline, f"start {starts} is not told"
                time.sleep(0.01)
            running.check()
            if starts == 1:
                running.kill_and_start_again()
    finally:
        running.stop()


def test_a_job_whose_workers_start_too_slowly_is_started_again_a_few_times(tmp_path, monkeypatch):
    job = tmp_path / "job.py"
    job.write_text(
        "print('{\"started\": 1}', flush=True)\n"
        "raise RuntimeError('Python worker failed to connect back.')"
    )
    monkeypatch.setattr(stream, "_JOB", job)
    running = Stream("127.0.0.1:1", tmp_path / "checkpoint", tmp_path / "log")
    try:
        deadline = time.monotonic() + 60
        with pytest.raises(StreamError, match="connect back"):
            while time.monotonic() < deadline:
                running.check()
                time.sleep(0.01)
        errors = (tmp_path / "log").read_text().count("RuntimeError: ")
        assert errors == 1 + stream._MOST_STARTS_AGAIN
    finally:
        running.stop()
    assert running.progress.starts == 1


def test_stop_leaves_no_process_behind(tmp_path, monkeypatch):
    job = tmp_path / "job.py"
    job.write_text("import time\ntime.sleep(600)")
    monkeypatch.setattr(stream, "_JOB", job)
    running = Stream("127.0.0.1:1", tmp_path / "checkpoint", tmp_path / "log")
    running.check()
    running.stop()
    with pytest.raises(StreamError):
        running.check()
