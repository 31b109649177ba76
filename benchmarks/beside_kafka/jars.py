"""Apache Kafka, its tools, and Spark's Kafka connector and Avro, as Maven Central has them.

Rule: each jar has the checksum that is pinned here, so that all runs measure the same code. The
jars are resolved and downloaded by the Apache Ivy that PySpark ships, the one behind `spark-submit
--packages`, so that nobody needs Maven.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line
from storage_engine.zookeeper.server.java import find_java

SPARK_VERSION = "4.2.0"
"""The newest version for which Maven Central has Spark's Kafka connector."""
KAFKA_VERSION = "3.9.1"
"""The newest version that meets in ZooKeeper."""
KRAFT_VERSION = "4.1.0"

_HERE = Path(__file__).parent
_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Jars that are downloaded together, into a folder of their own."""

    name: str
    folder: str
    pinned: Path
    """The names and checksums of the jars, as sha256sum writes them."""
    dependencies: tuple[tuple[str, str, str], ...]
    """The (organisation, name, version) of each jar; their dependencies come with them."""
    excluded: tuple[str, ...] = ()
    """Organisations whose jars PySpark has itself."""
    is_complete: bool = False
    """Whether the dependencies are in another set, and so do not come with the jars."""


KAFKA = JarSet(
    name=f"Apache Kafka {KAFKA_VERSION}",
    folder=f"kafka-{KAFKA_VERSION}",
    pinned=_HERE / "kafka_jars.sha256",
    dependencies=(
        ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    ),
)
KRAFT = JarSet(
    name=f"Apache Kafka {KRAFT_VERSION}",
    folder=f"kafka-{KRAFT_VERSION}",
    pinned=_HERE / "kraft_jars.sha256",
    dependencies=(
        ("org.apache.kafka", "kafka_2.13", KRAFT_VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
    ),
)
"""A Kafka that has consumer groups by default."""
KAFKA_TOOLS = JarSet(
    name=f"the tools of Apache Kafka {KAFKA_VERSION}",
    folder=f"kafka-tools-{KAFKA_VERSION}",
    pinned=_HERE / "kafka_tools_jars.sha256",
    dependencies=(("org.apache.kafka", "kafka-tools", KAFKA_VERSION),),
    is_complete=True,
)
"""Kafka's tools, run with the jars of KAFKA; their other dependencies serve Kafka Connect."""
CONNECTOR = JarSet(
    name=f"Spark's Kafka connector {SPARK_VERSION}",
    folder=f"spark-kafka-{SPARK_VERSION}",
    pinned=_HERE / "connector_jars.sha256",
    dependencies=(("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),),
    excluded=("org.apache.hadoop",),
)
SPARK_AVRO = JarSet(
    name=f"Spark's Avro {SPARK_VERSION}",
    folder=f"spark-avro-{SPARK_VERSION}",
    pinned=_HERE / "avro_jars.sha256",
    dependencies=(("org.apache.spark", "spark-avro_2.13", SPARK_VERSION),),
    is_complete=True,
)
"""Spark's `from_avro` and `to_avro`; Avro itself is among PySpark's jars."""


def fetch_jars(cache: Path, jars: JarSet) -> list[Path]:
    """Return the paths of the jars, downloaded unless the cache has them already."""
    folder = cache / jars.folder
    pinned = read_pinned(jars.pinned)
    if not folder.is_dir():
        report_line(f"downloading {jars.name} ({len(pinned)} jars) into {folder}")
        _download(cache, jars, folder)
    check(folder, pinned)
    return [folder / name for name in pinned]


def read_pinned(file: Path) -> dict[str, str]:
    """Return the SHA-256 checksums by the names of jars."""
    lines = file.read_text(encoding="ascii").splitlines()
    return {name: checksum for checksum, name in (line.split() for line in lines)}


def check(folder: Path, pinned: dict[str, str]) -> None:
    """CommandError unless the folder has exactly these jars."""
    found = {path.name for path in folder.glob("*.jar")}
    odd = sorted(found ^ set(pinned))
    odd += [
        name
        for name in sorted(found & set(pinned))
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != pinned[name]
    ]
    if odd:
        raise CommandError(
            f"'{folder}' has not the jars that are expected: {odd[0]} is missing, or is another "
            "one; remove the folder, and it is downloaded again"
        )


def _download(cache: Path, jars: JarSet, folder: Path) -> None:
    """Download into another folder first: an interrupted download leaves no partial set."""
    work = cache / f"{jars.folder}.part"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    ivy = work / "ivy.xml"
    ivy.write_text(ivy_file(jars), encoding="utf-8")
    pattern = work / "jars" / "[artifact]-[revision](-[classifier]).[ext]"
    command = [str(find_java()), "-jar", str(_ivy_jar()), "-warn", "-cache", str(cache / "ivy")]
    command += ["-ivy", str(ivy), "-retrieve", str(pattern)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CommandError(_not_downloaded(jars, f"not done after {_TIMEOUT_S} s")) from None
    if done.returncode:
        raise CommandError(_not_downloaded(jars, _reason(done.stdout + done.stderr)))
    (work / "jars").rename(folder)
    shutil.rmtree(work)


def ivy_file(jars: JarSet) -> str:
    """Return the ivy.xml that names the jars to resolve."""
    alone = 'transitive="false" ' if jars.is_complete else ""
    wanted = "".join(
        f'<dependency org="{organisation}" name="{name}" rev="{version}" {alone}'
        'conf="default->default(*)"/>'
        for organisation, name, version in jars.dependencies
    )
    left_out = "".join(f'<exclude org="{organisation}"/>' for organisation in jars.excluded)
    return (
        '<ivy-module version="2.0"><info organisation="headrace" module="beside-kafka"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}{left_out}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    home = spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else None
    found = sorted(Path(home or os.devnull).glob("jars/ivy-*.jar"))
    if not found:
        raise CommandError("PySpark, which has Apache Ivy in its jars, is not here: install it")
    return found[-1]


def _not_downloaded(jars: JarSet, reason: str) -> str:
    return (
        f"{jars.name} can't be downloaded ({reason}); this needs Maven Central: check the network, "
        "or run where --folder has been filled before"
    )


def _reason(output: str) -> str:
    """Return the line that names the cause: Ivy repeats its report at length."""
    lines = [line.strip() for line in output.splitlines()]
    causes = [line for line in lines if "Exception" in line or "UNRESOLVED" in line]
    told = causes or [line for line in lines if line.strip(":.| ")]
    return told[0].strip(": ") if told else "Ivy said nothing"
