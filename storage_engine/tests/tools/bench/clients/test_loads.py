"""The rows of the comparison of other people's clients."""

from benchmarks.clients.loads import GROUPS, ROWS
from benchmarks.clients.results import COLUMNS, cells, result_of
from storage_engine.tests.tools.bench.clients.turns import turns_of
from storage_engine.tools.table import format_table


def test_every_row_has_a_name_of_its_own_and_a_line_in_the_table():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.group for row in ROWS} == set(GROUPS)
    results = [result_of(row, turns_of(row.name, [1.0], [2.0])) for row in ROWS]
    lines = format_table(COLUMNS, [cells(each) for each in results]).splitlines()
    assert len(lines) == 1 + len(ROWS)
