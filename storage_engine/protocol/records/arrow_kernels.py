"""The kernels of Arrow that reading needs, without `pyarrow.compute`. The import of that module
makes a documented Python function of each of some 300 kernels, which takes 26 to 40 ms of processor
time. Each of Spark's Python workers would pay that before its first record.
"""

from typing import Any

try:
    from pyarrow._compute import call_function
except ImportError:
    # A PyArrow that keeps it elsewhere: slower to load, but the same.
    from pyarrow.compute import call_function


def take(array: Any, indices: Any) -> Any:
    """The rows of `array` at `indices`, which must be within it."""
    return call_function("take", [array, indices])
