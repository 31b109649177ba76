"""What the comparison with Apache Kafka makes of its rounds."""

from benchmarks.beside_kafka.processor_time import CpuTimes
from benchmarks.beside_kafka.rows import (
    COLUMNS,
    JOBS,
    ROWS,
    Batch,
    Measured,
    Round,
    cells,
    result_of,
)
from storage_engine.tools.table import format_table


def measured(rows: int, times_ms: list[float], cpu_s: float) -> Measured:
    batches = [Batch(rows=rows, time_ms=each) for each in times_ms]
    cpu = CpuTimes(brokers=cpu_s / 2, jvm=cpu_s / 4, python=cpu_s / 4)
    return Measured(batches=batches, rows=rows * len(batches), cpu=cpu)


def rounds(
    ours: list[list[float]], theirs: list[list[float]], rows: int = 200_000, cpu_s: float = 2.0
) -> list[Round]:
    return [
        Round(headrace=measured(rows, mine, cpu_s), kafka=measured(rows, its, 2 * cpu_s))
        for mine, its in zip(ours, theirs, strict=True)
    ]


def row_of(name: str):
    return next(row for row in ROWS if row.name == name)


def test_a_time_is_the_median_micro_batch_and_meets_its_goal_when_it_is_half():
    recorded = rounds([[100, 150, 900], [140, 140, 140]], [[300, 300, 310], [350, 350, 350]])
    result = result_of(row_of("micro-batch"), recorded)
    assert [result.headrace, result.kafka] == [145, 325]
    assert result.ratio_spread == (0.4, 0.5)
    assert [result.ratio, result.goal, result.met] == [0.45, "<= 0.5", True]
    assert result.cpu_ratio == 0.5
    assert [each["headrace"] for each in result.rounds] == [150, 140]


def test_a_rate_is_all_rows_over_all_time_and_misses_its_goal_below_it():
    recorded = rounds([[500, 1500]] * 3, [[1000, 3000], [2000, 2400], [2000, 2000]])
    result = result_of(row_of("copy"), recorded)
    assert [result.headrace, result.kafka] == [200_000, 100_000]
    assert list(result.kafka_spread) == [90_909, 100_000]
    assert [result.ratio, result.met] == [2, False]


def test_processor_time_is_told_for_a_million_rows():
    result = result_of(row_of("cpu"), rounds([[500, 500]], [[900, 900]]))
    assert [result.headrace, result.kafka, result.ratio, result.met] == [5, 10, 0.5, True]


def test_the_table_has_a_line_for_each_row_and_short_numbers():
    recorded = rounds([[500, 1500]], [[1000, 3000]])
    results = [result_of(row, recorded) for row in ROWS]
    lines = format_table(COLUMNS, [cells(each) for each in results]).splitlines()
    assert len(lines) == 1 + len(ROWS)
    copied = next(line for line in lines if line.startswith("stream copied"))
    assert "200k" in copied
    assert copied.split()[-2:] == ["no", "0.5"]


def test_every_row_has_its_job_and_every_job_a_row():
    assert {row.job for row in ROWS} == {job.name for job in JOBS}
