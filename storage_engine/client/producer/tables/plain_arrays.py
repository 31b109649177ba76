"""Arrays without the encodings that other libraries choose: dictionaries, run ends, views of text,
and types of extensions.
"""

import numpy as np
import pyarrow as pa


def plain(array: pa.Array) -> pa.Array:
    """Return the same values; values nested in lists, structs and maps stay as they are."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        return plain(array.values).take(_runs(array))
    if pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    return array


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of `plain(array)`."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _runs(array: pa.RunEndEncodedArray) -> pa.Array:
    """The run of each row."""
    ends = np.asarray(array.run_ends)
    rows = np.arange(array.offset, array.offset + len(array))
    return pa.array(np.searchsorted(ends, rows, side="right"), pa.int64())
