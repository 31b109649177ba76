"""No side is fast because it does not do its work: each turn is checked."""

import os

import pytest

from benchmarks.avro.registry import RunningRegistry
from benchmarks.avro.sparks import Expected, Side
from benchmarks.support.brokers import Brokers
from benchmarks.typed.columns import TWO
from storage_engine.tools.errors import CommandError

EXPECTED = Expected(rows=100, checksum=4711, digest=815)


class AnsweringSpark:
    """A Spark that reads this."""

    pid = os.getpid()

    def __init__(self, rows: int, digest: int) -> None:
        self._found = {"rows": rows, "digest": digest}
        self.jobs: list[dict[str, object]] = []

    def do(self, job):
        self.jobs.append(job)
        return {"batches": [{"rows": job["rows"], "time_ms": 50.0}], **self._found}


def side_with(spark: AnsweringSpark) -> Side:
    registry = RunningRegistry("http://127.0.0.1:8081", os.getpid(), 1.0)
    brokers = Brokers("127.0.0.1:9092", [os.getpid()])
    return Side("headrace", brokers, spark, registry, 7)  # type: ignore[arg-type]


def test_a_read_is_measured_when_it_has_found_all_rows():
    spark = AnsweringSpark(100, 4711)
    assert side_with(spark).read("rides", TWO, EXPECTED).rate == 2_000
    assert [spark.jobs[0]["columns"], spark.jobs[0]["schema_id"]] == [["id", "fare"], 7]


@pytest.mark.parametrize(("rows", "digest"), [(99, 4711), (100, 4710)])
def test_a_read_that_misses_a_row_or_has_another_value_is_an_error(rows, digest):
    with pytest.raises(CommandError, match=r"headrace does not read the rows of 'rides' .* 4711"):
        side_with(AnsweringSpark(rows, digest)).read("rides", TWO, EXPECTED)


def test_all_columns_are_compared_by_their_digest():
    side_with(AnsweringSpark(100, 815)).check_all_columns("rides", EXPECTED)
    with pytest.raises(CommandError):
        side_with(AnsweringSpark(100, 4711)).check_all_columns("rides", EXPECTED)
