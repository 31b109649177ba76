"""Tests of what the present Spark has."""

from connector.spark_version import pushes_filters

PUSHDOWN = ["test_pushdown.py", "typed/test_typed_narrowing.py"]

collect_ignore = [] if pushes_filters() else PUSHDOWN
