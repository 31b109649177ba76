"""The jars of Fluss. Nothing is downloaded here."""

from benchmarks.beside_kafka.jars import ivy_file, read_pinned
from benchmarks.typed.fluss import FLUSS, FLUSS_VERSION


def test_what_is_asked_of_maven_is_pinned():
    pinned = read_pinned(FLUSS.pinned)
    assert f"fluss-server-{FLUSS_VERSION}.jar" in pinned
    assert f'name="fluss-server" rev="{FLUSS_VERSION}"' in ivy_file(FLUSS)
