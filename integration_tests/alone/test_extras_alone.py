"""The wheel and each extra, installed alone into an empty environment, do what the documents
promise. With HEADRACE_FAULTS=full; HEADRACE_PYTHON=3.12 does it with another Python, as
`make python-3.12` does with the bare package.
"""

import re
from pathlib import Path

import pytest

from integration_tests.alone.environments import Environment, build_wheel, interpreter
from storage_engine.tests.sampling import in_full

pytestmark = [in_full]

JOBS = Path(__file__).with_name("jobs.py")


@pytest.fixture(scope="module")
def python() -> str:
    return interpreter()


@pytest.fixture(scope="module")
def wheel(python, tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(python, wheel, tmp_path_factory):
    """An environment without an extra."""
    return Environment(tmp_path_factory.mktemp("bare"), python, wheel, "")


@pytest.fixture(scope="module")
def servers(bare, tmp_path_factory):
    """Of a cluster which that environment runs. Its topic 'in' has what the bare package wrote."""
    folder = tmp_path_factory.mktemp("cluster")
    said = bare.run("headrace", "up", "--dir", folder, "--brokers", "1", "--port", "0", "--detach")
    (address,) = re.findall(r"bootstrap servers: (\S+)", said)
    try:
        for topic in ("in", "out", "clients", "otel"):
            bare.run("headrace", "topics", "create", topic, "--bootstrap-server", address,
                     "--partitions", "2", "--replication-factor", "1")  # fmt: skip
        kept = bare.run("python", JOBS, "bare", address, folder)
        assert kept.endswith("bare: kept\n")
        yield address
    finally:
        bare.run("headrace", "down", "--dir", folder)


def test_the_bare_package_streams(servers):
    assert servers


@pytest.mark.parametrize("extra", ["sql", "connect", "otel", "console", "demo"])
def test_an_extra_does_what_it_is_for(python, wheel, servers, tmp_path, extra):
    environment = Environment(tmp_path / "environment", python, wheel, extra)
    kept = environment.run("python", JOBS, extra, servers, tmp_path)
    assert kept.endswith(f"{extra}: kept\n")


def test_what_is_missing_is_told_in_one_line(bare, servers):
    code = (
        "from connector import KeyedSink; from types import SimpleNamespace as frame\n"
        "try: KeyedSink('sqlite://', table='t', query_id='q')(frame(columns=[]), 0)\n"
        "except Exception as error: print(error)"
    )
    assert bare.run("python", "-c", code) == (
        "[MISSING_PACKAGE] KeyedSink needs SQLAlchemy: pip install 'headrace[sql]'\n"
    )
