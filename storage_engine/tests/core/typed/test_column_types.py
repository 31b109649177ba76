"""Which type of a column is wider than another."""

import pytest
from hypothesis import given, settings

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.column_types import (
    DecimalColumn,
    FloatColumn,
    IntegerColumn,
    MapColumn,
    StringColumn,
    StructColumn,
    StructColumnField,
    check_widening,
)
from storage_engine.tests.core.typed.schema_strategies import types
from storage_engine.tests.sampling import examples


@settings(max_examples=examples(150), deadline=None)
@given(types, types)
def test_a_type_is_wider_than_itself_and_not_both_ways(one, other):
    check_widening(one, one, "c")
    if one != other:
        outcomes = []
        for pair in ((one, other), (other, one)):
            try:
                check_widening(*pair, "c")
            except ConfigError:
                outcomes.append(False)
            else:
                outcomes.append(True)
        assert outcomes.count(True) <= 1


@pytest.mark.parametrize(
    ("old", "new", "is_wider"),
    [
        (IntegerColumn(8), IntegerColumn(64), True),
        (IntegerColumn(64), IntegerColumn(32), False),
        (IntegerColumn(32), FloatColumn(64), False),
        (FloatColumn(32), FloatColumn(64), True),
        (DecimalColumn(5, 2), DecimalColumn(9, 2), True),
        (DecimalColumn(5, 2), DecimalColumn(9, 3), False),
        (StringColumn(), IntegerColumn(8), False),
        (
            MapColumn(IntegerColumn(8), FloatColumn(32)),
            MapColumn(IntegerColumn(16), FloatColumn(64)),
            True,
        ),
        (
            StructColumn((StructColumnField("a", IntegerColumn(8)),)),
            StructColumn((StructColumnField("a", IntegerColumn(16)),)),
            True,
        ),
        (
            StructColumn((StructColumnField("a", IntegerColumn(8)),)),
            StructColumn((StructColumnField("b", IntegerColumn(8)),)),
            False,
        ),
    ],
)
def test_what_is_wider(old, new, is_wider):
    if is_wider:
        check_widening(old, new, "c")
    else:
        with pytest.raises(ConfigError, match="column 'c' can't change from"):
            check_widening(old, new, "c")
