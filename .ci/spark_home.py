"""Makes the home of the Spark that tests start: `.venv/spark`, or that of an earlier version,
`.venv/versions/<version>`:

    spark_home.py                   of the Spark in .venv
    spark_home.py 4.0               of Spark 4.0, which it installs

There Spark starts at a third of the cost, which hundreds of processes of a test run pay:

- Its Python workers load PySpark's compiled modules. Spark itself hands them `pyspark.zip`, which
  holds sources only, so that each worker compiles them anew.
- Its JVM maps the classes that a job uses from an archive (-XX:SharedArchiveFile), instead of
  reading and verifying them.

The archive is of the classes that the jobs of spark_jobs.py load. A JVM that it does not fit
ignores it.

An earlier version is PySpark alone, in a folder for PYTHONPATH. All else is shared with .venv.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VENV = Path(sys.prefix).resolve()
RELEASES = {"4.0": "4.0.0", "4.1": "4.1.0", "4.2": "4.2.0"}
"""The first release of each version: what works there works in its patch releases."""

FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Each JVM lives for seconds, in which the second of its two compilers costs more than it saves. An
archive fits only the flags that it was made with; integration_tests/support/spark_versions.py has
these flags, too."""


def main() -> None:
    arguments = sys.argv[1:]
    version = arguments[-1] if arguments else None
    if version is None:
        home, packages = VENV / "spark", None
    else:
        home = VENV / "versions" / version
        packages = home / "packages"
        install(RELEASES[version], packages)
    make_home(home, packages)
    make_archive(home, packages)


def install(release: str, packages: Path) -> None:
    """Install a release of PySpark into a folder, unless it is there."""
    if (packages / f"pyspark-{release}.dist-info").is_dir():
        return
    shutil.rmtree(packages, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=VENV) as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        whole = Path(folder) / "packages"
        arguments = ["--no-deps", "--target", str(whole), f"pyspark=={release}"]
        subprocess.run([*command, *arguments], check=True)
        packages.parent.mkdir(parents=True, exist_ok=True)
        whole.rename(packages)


def make_home(home: Path, packages: Path | None) -> None:
    import py4j

    if packages is None:
        import pyspark

        packages = Path(pyspark.__file__).resolve().parents[1]
    installed = packages / "pyspark"
    # Spark names this path to its workers; Python does not mind that it is a folder.
    modules = home / "python" / "lib" / "pyspark.zip"
    shutil.rmtree(home / "python", ignore_errors=True)
    modules.mkdir(parents=True)
    for package in (installed, Path(py4j.__file__).resolve().parent):
        (modules / package.name).symlink_to(package)
    for name in ("bin", "jars"):
        (home / name).unlink(missing_ok=True)
        (home / name).symlink_to(installed / name)


def make_archive(home: Path, packages: Path | None) -> None:
    archive = home / "classes.jsa"
    archive.unlink(missing_ok=True)
    environment = {name: text for name, text in os.environ.items() if "SPARK" not in name}
    environment |= {
        "SPARK_HOME": str(home),
        "SPARK_SUBMIT_OPTS": f"{FLAGS} -XX:ArchiveClassesAtExit={archive} -Xlog:disable",
        "PYSPARK_PYTHON": sys.executable,
    }
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    jobs = [sys.executable, Path(__file__).resolve().with_name("spark_jobs.py")]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(jobs, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    main()
