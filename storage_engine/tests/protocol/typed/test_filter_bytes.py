"""Filters as bytes."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.protocol.typed.filter_bytes import decode_filter, encode_filter
from storage_engine.tests.protocol.typed.typed_values import TEXTS, comparisons
from storage_engine.tests.sampling import examples

WIRE_VALUES = st.one_of(
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.decimals(-3, 3, places=2),
    TEXTS,
    TEXTS.map(str.encode),
    st.booleans(),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(1, 9).flatmap(lambda n: comparisons(WIRE_VALUES, n)), max_size=4))
def test_a_filter_comes_back_from_its_bytes(wanted):
    found = decode_filter(encode_filter(wanted))
    # NaN is not equal to itself, and a whole number beyond 64 bits comes back as a decimal.
    assert [(c.column_id, c.operator) for c in found] == [(c.column_id, c.operator) for c in wanted]
    assert [list(map(str, c.values)) for c in found] == [list(map(str, c.values)) for c in wanted]


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_hostile_filters_are_refused(data):
    encoded_filter = encode_filter(
        [Comparison(1, Operator.IN, (1, "text", Decimal("1.5"))), Comparison(2, Operator.IS_NULL)]
    )
    position = data.draw(st.integers(0, len(encoded_filter) - 1))
    changed = bytearray(encoded_filter)
    changed[position] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(1, len(changed)))
    try:
        decode_filter(changed[:end])
    except InvalidRequestError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "wanted",
    [
        [Comparison(1, Operator.IS_NULL)] * 101,
        [Comparison(1, Operator.IN, tuple(range(1000)))] * 5,
        [Comparison(1, Operator.EQ, ("x" * 70_000,))],
        [Comparison(1, Operator.EQ, (10**40,))],
        [Comparison(1, Operator.EQ, (Decimal("NaN"),))],
    ],
)
def test_a_filter_that_is_too_large_is_refused_before_it_is_sent(wanted):
    with pytest.raises(InvalidRequestError, match="a filter "):
        encode_filter(wanted)
