"""Compares values of Arrow where NaN is equal to NaN."""

import math


def comparable(value):
    """The value with something in place of NaN that equals itself, and -0.0 other than 0.0."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float():
            return (value, math.copysign(1.0, value))
        case dict():
            return {key: comparable(each) for key, each in value.items()}
        case list() | tuple():
            return [comparable(each) for each in value]
        case _:
            return value
