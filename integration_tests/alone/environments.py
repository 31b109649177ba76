"""Environments that hold the package's wheel with one extra, and nothing else."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (
    "storage_engine",
    "connector",
    "pyspark_headrace",
    "headrace_console",
    "headrace_registry",
    "headrace_lake",
)
FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
PYTHON = os.environ.get("HEADRACE_PYTHON")
"""A version of Python, such as 3.12, instead of that of the tests."""

NOT_OF_OURS = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV")
"""Variables by which a process would find the packages of the tests."""


def build_wheel(folder: Path) -> Path:
    """From a copy of the sources, as setuptools writes into them."""
    copy = folder / "sources"
    for name in (*SOURCES, "conf"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    run_outside([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, copy])
    (wheel,) = folder.glob("*.whl")
    return wheel


def interpreter() -> str:
    """That of the tests, or of PYTHON; skips the tests where there is none."""
    if PYTHON is None:
        return sys.executable
    # A shim of pyenv lies on the PATH for each version, and runs those only that are activated.
    places = [shutil.which(f"python{PYTHON}"), *_of_pyenv(PYTHON)]
    for found in places:
        if found is not None and _is_version(found, PYTHON):
            return found
    pytest.skip(f"there is no Python {PYTHON} here, neither on the PATH nor of pyenv")


class Environment:
    def __init__(self, folder: Path, python: str, wheel: Path, extra: str) -> None:
        self._bin = folder / "bin"
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        if importlib.util.find_spec("uv") is None:
            run_outside([python, "-m", "venv", folder])
            run_outside([self.python, "-m", "pip", "install", "--quiet", wanted])
            return
        uv = [sys.executable, "-m", "uv"]
        run_outside([*uv, "venv", "--quiet", "--python", python, folder])
        run_outside([*uv, "pip", "install", "--quiet", "--python", self.python, wanted])

    @property
    def python(self) -> Path:
        return self._bin / "python"

    def run(self, program: str | Path, *arguments: str | Path, timeout_s: float = 300) -> str:
        """Runs a program of the environment, outside of our folders, to its end. Returns what it
        printed; AssertionError when it failed."""
        return run_outside([self._bin / program, *arguments], timeout_s=timeout_s)


def run_outside(command: list[str | Path], timeout_s: float = 900) -> str:
    """A command that finds nothing of the tests' own packages. Returns what it printed."""
    variables = {name: value for name, value in os.environ.items() if name not in NOT_OF_OURS}
    done = subprocess.run(
        command, cwd="/", env=variables, capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _of_pyenv(version: str) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = (root / "versions").glob(f"{version}.*/bin/python")
    return [str(each) for each in sorted(found, key=_numbers, reverse=True)]


def _numbers(path: Path) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", path.parents[1].name)]


def _is_version(python: str, version: str) -> bool:
    code = "import ssl, sys, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.strip() == version
