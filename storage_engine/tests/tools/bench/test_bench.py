"""`headrace bench`: each benchmark tells what it does before it loads what it needs."""

import subprocess
import sys

import pytest

from benchmarks import bench
from benchmarks.bench import NAMES
from storage_engine.tools.cli import main


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_has_help_with_an_example(name, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["bench", name, "--help"])
    assert caught.value.code == 0
    _, _, examples = capsys.readouterr().out.partition("\nexample")
    assert f"headrace bench {name}" in examples


def test_the_help_has_a_line_for_each():
    assert bench.__doc__ is not None
    listed = bench.__doc__.partition("benchmarks:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines()] == list(NAMES)


def test_help_of_a_benchmark_of_spark_loads_no_spark():
    code = (
        "import sys\nfrom storage_engine.tools.cli import main\n"
        "try: main(['bench', 'spark-read', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 0


def test_an_unknown_benchmark_is_wrong_usage_with_the_names_of_all(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["bench", "spark-reed"])
    assert caught.value.code == 2
    assert "spark-read" in capsys.readouterr().err
