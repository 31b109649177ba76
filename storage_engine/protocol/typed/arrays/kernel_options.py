"""The options of Arrow's kernels, without `pyarrow.compute`: see `records/arrow_kernels.py`."""

try:
    from pyarrow._compute import (
        MatchSubstringOptions,
        PadOptions,
        ReplaceSliceOptions,
        ReplaceSubstringOptions,
        SetLookupOptions,
    )
except ImportError:
    from pyarrow.compute import (
        MatchSubstringOptions,
        PadOptions,
        ReplaceSliceOptions,
        ReplaceSubstringOptions,
        SetLookupOptions,
    )

__all__ = [
    "MatchSubstringOptions",
    "PadOptions",
    "ReplaceSliceOptions",
    "ReplaceSubstringOptions",
    "SetLookupOptions",
]
