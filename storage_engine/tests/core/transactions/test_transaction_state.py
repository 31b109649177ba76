"""The names of named batch writes, by which a transaction coordinator finds their ledgers."""

import pytest

from storage_engine.core.transactions.transaction_state import (
    named_write,
    part_and_number,
)


@pytest.mark.parametrize("part", ["", "t", "a/b", "ü 7"])
def test_a_name_says_part_and_number(part):
    assert part_and_number(named_write(part, 2**63 - 1)) == (part, 2**63 - 1)
    for query in ("q", named_write(part, 5).replace("5", "x"), "__headrace_number/5"):
        assert part_and_number(query) is None


@pytest.mark.parametrize("number", ["05", "00", "-1", "+5", "\u0665", str(2**63), "9" * 5000, ""])
def test_a_number_has_one_name(number):
    assert part_and_number(f"__headrace_number/{number}/t") is None
