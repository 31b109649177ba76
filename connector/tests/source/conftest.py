"""Tests of what the present Spark has."""

from connector.spark_version import pushes_filters

collect_ignore = [] if pushes_filters() else ["test_pushdown.py", "test_typed_narrowing.py"]
