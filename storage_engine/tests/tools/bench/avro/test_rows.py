"""What the comparison of Avro makes of its rounds."""

from benchmarks.avro.rows import COLUMNS, ROWS, Measured, alone, cells, compared
from benchmarks.beside_kafka.processor_time import CpuTimes
from storage_engine.tools.table import format_table


def measured(rate: float, cpu_s: float = 4.0):
    cpu = CpuTimes(brokers=cpu_s / 4, jvm=cpu_s / 2, python=cpu_s / 4)
    return Measured(rows=1_000_000, time_s=1_000_000 / rate, cpu=cpu)


def rounds(*rates: tuple[float, float]):
    return [{"headrace": measured(one, 2.0), "kafka": measured(other)} for one, other in rates]


def test_rates_and_processor_times_are_compared_round_by_round():
    result = compared(
        "read-all", rounds((400_000, 200_000), (300_000, 100_000), (200_000, 100_000))
    )
    assert [result.headrace, result.kafka, result.kafka_spread] == [
        *(300_000, 100_000),
        (100_000, 200_000),
    ]
    assert [result.ratio, result.ratio_spread] == [2, (2, 3)]
    assert [result.goal, result.met] == [">= 2", True]
    assert [result.cpu_us, result.kafka_cpu_us, result.cpu_ratio] == [2, 4, 0.5]


def test_a_ratio_below_its_goal_misses_it():
    assert compared("read-two", rounds((299_000, 100_000))).met is False
    assert compared("read-two", rounds((300_000, 100_000))).met is True


def test_rounds_tell_where_the_processor_time_went():
    (each,) = compared("write", rounds((400_000, 200_000))).rounds
    assert each["kafka"] == {
        "rate": 200_000,
        "brokers_cpu_s": 1,
        "jvm_cpu_s": 2,
        "python_cpu_s": 1,
    }


def test_the_table_has_a_line_for_each_row_also_where_there_is_no_other_side():
    results = [compared(row.name, rounds((4e6, 2e6))) for row in ROWS[:3]]
    results += [alone(row.name, [2.0, 3.0, 7.0], [10.0, 20.0, 30.0]) for row in ROWS[3:]]
    assert [results[-1].headrace, results[-1].met, results[-1].cpu_us] == [3, True, 20]
    assert results[-1].rounds[0] == {"headrace": {"figure": 2, "cpu_us": 10}}
    lines = format_table(COLUMNS, [cells(each) for each in results]).splitlines()
    assert len(lines) == 1 + len(ROWS)
    assert lines[1].split()[-3:] == ["2.0", "4.0", "0.5"]
    assert lines[-1].split()[-3:] == ["20.0", "-", "-"]
