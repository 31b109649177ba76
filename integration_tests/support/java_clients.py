"""Kafka's own client for Java, from Maven's central repository, once; Spark's jars have what it
needs besides."""

import hashlib
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pyspark
import pytest

JARS = Path(pyspark.__file__).parent / "jars"
REPOSITORY = "https://repo1.maven.org/maven2/org/apache/kafka/kafka-clients"
SHA256 = {
    "3.9.1": "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    "4.1.0": "eb74709dc3be35e06208827860c87a94872e8a4b00f466880670785c85a20627",
}
NEWEST = "4.1.0"
COMPILER_LIMIT_S = 600.0

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""For a JVM of seconds: its second compiler and threads that collect garbage cost more processor
time than they give."""


def client_jar(version: str) -> Path:
    """From the cache, or fetched and checked; skips where neither can be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace-tests"
    jar = cache / f"kafka-clients-{version}.jar"
    if not jar.exists():
        url = f"{REPOSITORY}/{version}/{jar.name}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                data = answer.read()
        except OSError as error:
            pytest.skip(f"{url} can't be fetched: {error}")
        cache.mkdir(parents=True, exist_ok=True)
        partial = jar.with_suffix(f".{os.getpid()}")
        partial.write_bytes(data)
        partial.rename(jar)
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    assert found == SHA256[version], f"{jar} is another file; remove it"
    return jar


def compiled(source: Path, version: str, classes: Path) -> str:
    """The class path of a program, compiled into a folder; skips where that can't be."""
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed: a JRE alone can't compile the client's program")
    jar = client_jar(version)
    subprocess.run(
        ["javac", *(f"-J{option}" for option in SHORT_LIVED), "-cp", jar, "-d", classes, source],
        check=True,
        timeout=COMPILER_LIMIT_S,
    )
    return f"{classes}:{jar}:{JARS}/*"
