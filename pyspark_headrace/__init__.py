"""Registers the Spark format `headrace`: Spark looks for `DefaultSource` in modules named
`pyspark_*`.
"""

from connector.data_source import HeadraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
