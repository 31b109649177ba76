"""The names that `from connector import …` offers, and the cost of the import."""

import subprocess
import sys

import connector.database


def test_only_what_a_user_needs_is_public_and_documented():
    assert connector.__all__ == [
        "ConnectorError",
        "KeyedSink",
        "LagListener",
        "OffsetsBehindLatest",
        "QueryMetrics",
        "dead_letters",
        "in_session",
        "lag_of",
        "register",
        "with_dead_letters",
    ]
    for name in connector.__all__:
        assert getattr(connector, name).__doc__
        assert name in str(connector.__doc__)


def test_importing_it_costs_a_worker_nothing():
    heavy = "{'pyarrow', 'numpy', 'sqlalchemy', 'pyspark.sql'}"
    code = f"import connector, sys; print(sorted({heavy} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"
