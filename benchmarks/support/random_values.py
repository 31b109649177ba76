"""Values that no codec shrinks and no cache knows."""

import numpy as np
import pyarrow as pa


def random_values(rows: int, value_bytes: int, *, seed: int) -> pa.Array:
    """Return `rows` values of random bytes, as a record batch's column."""
    data = np.random.default_rng(seed).bytes(rows * value_bytes)
    offsets = np.arange(0, (rows + 1) * value_bytes, value_bytes, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
