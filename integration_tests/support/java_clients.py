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
REPOSITORY = "https://repo1.maven.org/maven2"
SHA256 = {
    "3.9.1": "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    "4.1.0": "eb74709dc3be35e06208827860c87a94872e8a4b00f466880670785c85a20627",
}
NEWEST = "4.1.0"
STREAMS = {
    "org/apache/kafka/kafka-streams/4.1.0": (
        "3e275e8a224035b7dab6344eef518fc125f6f17f3ac191b16d5ef5b55dada0a6"
    )
}
TOOLS = {
    "org/apache/kafka/kafka-tools/4.1.0": (
        "1c2836cee57a947d2db461410ac5008ca80facbd19b7ed9d284ca883782ea741"
    ),
    "org/apache/kafka/kafka-server-common/4.1.0": (
        "73b8b467597429cc0f3c959b0bb1181556071aaab13a6240b9877a37a8c312d0"
    ),
    "net/sourceforge/argparse4j/argparse4j/0.7.0": (
        "65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56"
    ),
    "net/sf/jopt-simple/jopt-simple/5.0.4": (
        "df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28"
    ),
    "com/google/re2j/re2j/1.8": "7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7",
}
"""Place in the repository -> the jar's hash: of what Kafka's commands need beside its client."""

COMPILER_LIMIT_S = 600.0

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""For a JVM of seconds: its second compiler and threads that collect garbage cost more processor
time than they give."""

QUIET = "-Dlog4j2.level=OFF"
"""Else what log4j is told of errors is in the output of the program."""


def client_jar(version: str) -> Path:
    """From the cache, or fetched and checked; skips where neither can be."""
    return jar(f"org/apache/kafka/kafka-clients/{version}", SHA256[version])


def jar(place: str, sha256: str) -> Path:
    """See `client_jar`; `place` ends with the artifact's name and version."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace-tests"
    artifact, version = place.split("/")[-2:]
    path = cache / f"{artifact}-{version}.jar"
    if not path.exists():
        url = f"{REPOSITORY}/{place}/{path.name}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                data = answer.read()
        except OSError as error:
            pytest.skip(f"{url} can't be fetched: {error}")
        cache.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(data)
        partial.rename(path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == sha256, f"{path} is another file; remove it"
    return path


def beside(jars: dict[str, str]) -> str:
    """The class path of the newest client with other jars of Kafka, which are fetched, too."""
    paths = [client_jar(NEWEST), *(jar(place, sha256) for place, sha256 in jars.items())]
    return ":".join([*map(str, paths), f"{JARS}/*"])


def compiled(source: Path, version: str, classes: Path) -> str:
    """The class path of a program, compiled into a folder; skips where that can't be."""
    return compiled_with(f"{client_jar(version)}:{JARS}/*", source, classes)


def compiled_with(class_path: str, source: Path, classes: Path) -> str:
    """See `compiled`."""
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed: a JRE alone can't compile the client's program")
    options = [*(f"-J{option}" for option in SHORT_LIVED), "-cp", class_path, "-d", str(classes)]
    subprocess.run(["javac", *options, source], check=True, timeout=COMPILER_LIMIT_S)
    return f"{classes}:{class_path}"
