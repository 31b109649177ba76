"""Times of Arrow as records have them: milliseconds since 1970."""

import pyarrow as pa

from storage_engine.protocol.records.arrow_kernels import as_type, kernel

try:
    from pyarrow._compute import RoundTemporalOptions
except ImportError:
    from pyarrow.compute import RoundTemporalOptions

_WHOLE = RoundTemporalOptions(unit="millisecond")


def milliseconds(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """int64 of a column of timestamps. What is less than a millisecond is cut off downwards, before
    1970, too, as Java does; Arrow's cast goes towards 1970."""
    unit = times.type.unit
    # Of a time in a zone Arrow would look for the local time.
    times = as_type(times, pa.timestamp(unit))
    if unit in ("us", "ns"):
        times = kernel("floor_temporal", times, options=_WHOLE)
    return as_type(as_type(times, pa.timestamp("ms")), pa.int64())
