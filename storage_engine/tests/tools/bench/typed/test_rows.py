"""What the comparison of typed topics makes of its rounds."""

from benchmarks.typed.rows import COLUMNS, ROWS, Measured, cells, result_of, stopped
from storage_engine.tools.table import format_table


def measured(rate: float, *, brokers_s: float = 1.0, reader_s: float = 1.0, sent: int = 1):
    return Measured(
        rows=1_000_000,
        time_s=1_000_000 / rate,
        brokers_s=brokers_s,
        reader_s=reader_s,
        sent=sent,
    )


def row_of(name: str):
    return next(row for row in ROWS if row.name == name)


def rounds_of(name: str, pairs: list[tuple[Measured, Measured]]):
    row = row_of(name)
    return [{row.measured: one, row.beside: other} for one, other in pairs]


def test_a_rate_is_compared_round_by_round():
    pairs = [(measured(200_000), measured(20_000)), (measured(300_000), measured(20_000))]
    result = result_of(row_of("spark-two"), rounds_of("spark-two", [*pairs, pairs[0]]))
    assert [result.measured, result.beside] == [200_000, 20_000]
    assert [result.ratio, result.ratio_spread] == [10, (10, 15)]
    assert [result.goal, result.met] == [">= 10", True]


def test_bytes_and_the_brokers_time_are_compared_for_a_row():
    few = measured(1e6, brokers_s=0.1, reader_s=0.1, sent=18_000_000)
    all_ = measured(1e6, brokers_s=0.5, reader_s=0.5, sent=240_000_000)
    sent = result_of(row_of("sent"), rounds_of("sent", [(few, all_)]))
    assert [sent.measured, sent.beside, sent.ratio, sent.met] == [18, 240, 0.075, True]
    brokers = result_of(row_of("brokers"), rounds_of("brokers", [(few, all_)]))
    assert [brokers.measured, brokers.ratio, brokers.met] == [0.1, 0.2, True]
    assert brokers.cpu_ratio == 0.2


def test_a_row_that_can_not_be_measured_says_why_in_its_line():
    pair = [(measured(1e6), measured(2e6))]
    results = [result_of(row, rounds_of(row.name, pair)) for row in ROWS[:-1]]
    results.append(stopped(ROWS[-1], "not measured: no server"))
    lines = format_table(COLUMNS, [cells(each) for each in results]).splitlines()
    assert len(lines) == 1 + len(ROWS)
    assert "not measured: no server" in lines[-1]
    assert lines[-1].split()[-1] == "-"
