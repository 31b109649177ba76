"""Makes the home of the Spark that tests start: `.venv/spark`. There Spark starts at a third of the
cost, which hundreds of processes of a test run pay:

- Its Python workers load PySpark's compiled modules. Spark itself hands them `pyspark.zip`, which
  holds sources only, so that each worker compiles them anew.
- Its JVM maps the classes that a job uses from an archive (-XX:SharedArchiveFile), instead of
  reading and verifying them.

The archive is of the classes that the jobs of spark_jobs.py load. A JVM that it does not fit
ignores it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(sys.prefix).resolve() / "spark"
ARCHIVE = HOME / "classes.jsa"
FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Each JVM lives for seconds, in which the second of its two compilers costs more than it gives. An
archive is used under the flags that it was made with; conftest.py has the same."""


def make_home() -> None:
    import py4j
    import pyspark

    installed = Path(pyspark.__file__).resolve().parent
    shutil.rmtree(HOME, ignore_errors=True)
    # Spark names this path to its workers; Python does not mind that it is a folder.
    modules = HOME / "python" / "lib" / "pyspark.zip"
    modules.mkdir(parents=True)
    for package in (installed, Path(py4j.__file__).resolve().parent):
        (modules / package.name).symlink_to(package)
    for name in ("bin", "jars"):
        (HOME / name).symlink_to(installed / name)


def make_archive() -> None:
    environment = {name: text for name, text in os.environ.items() if "SPARK" not in name}
    environment |= {
        "SPARK_HOME": str(HOME),
        "SPARK_SUBMIT_OPTS": f"{FLAGS} -XX:ArchiveClassesAtExit={ARCHIVE} -Xlog:disable",
        "PYSPARK_PYTHON": sys.executable,
    }
    jobs = [sys.executable, Path(__file__).resolve().with_name("spark_jobs.py")]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(jobs, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    make_home()
    make_archive()
