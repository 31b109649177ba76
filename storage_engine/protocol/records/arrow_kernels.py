"""The kernels of Arrow, without `pyarrow.compute`. The import of that module makes a documented
Python function of each of some 300 kernels, which takes 26 to 40 ms of processor time. Each of
Spark's Python workers would pay that before its first record.

Arrays' own methods, such as `cast`, import it; and `pa.array` and `pa.scalar` import pandas where
it is installed.
"""

import pyarrow as pa

try:
    from pyarrow import _compute
except ImportError:
    # A PyArrow that keeps it elsewhere: slower to load, but the same.
    from pyarrow import compute as _compute

compute = _compute
"""The module with the kernels and their options."""
_WHOLE = compute.RoundTemporalOptions(unit="millisecond")


def take(array: pa.Array, indices: pa.Array) -> pa.Array:
    """The rows of `array` at `indices`, which must be within it."""
    return compute.call_function("take", [array, indices])


def kernel(
    name: str, *arguments: pa.Array | pa.Scalar, options: _compute.FunctionOptions | None = None
) -> pa.Array:
    """The result of the kernel of that name, for which the arguments must have the right types."""
    return compute.call_function(name, list(arguments), options)


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as one of another type; pa.ArrowInvalid when a value does not fit into it."""
    if array.type == kind:
        return array
    return compute.call_function("cast", [array], compute.CastOptions(kind))


def milliseconds(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """int64 of a column of timestamps. What is less than a millisecond is cut off downwards, before
    1970, too, as Java does; Arrow's cast goes towards 1970."""
    unit = times.type.unit
    # Of a time in a zone Arrow would look for the local time.
    times = as_type(times, pa.timestamp(unit))
    if unit in ("us", "ns"):
        times = kernel("floor_temporal", times, options=_WHOLE)
    return as_type(as_type(times, pa.timestamp("ms")), pa.int64())
