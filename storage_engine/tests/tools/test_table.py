"""Tables for people."""

from storage_engine.tools.table import format_table


def test_a_table_aligns_numbers_to_the_right_and_shows_nothing_as_a_dash() -> None:
    table = format_table(("id", "name", "up"), [(1, "a", True), (12, None, False)])
    assert table.split("\n") == ["ID  NAME  UP", " 1  a     yes", "12  -     no"]
    assert format_table(("id",), []) == "ID"
