"""The source archive and the wheel are whole, and work in folders whose names have spaces."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from integration_tests.alone.environments import (
    FILES,
    ROOT,
    SOURCES,
    Environment,
    interpreter,
    run_outside,
)
from storage_engine.tests.sampling import in_full

CONFIGURATION = "conf"
"""What an operator copies from: at the top of a source archive, below share/ in a wheel."""


class Packages(NamedTuple):
    archive: Path
    wheel: Path


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Packages:
    """The wheel is built from the source archive, as an index's users build it."""
    folder = tmp_path_factory.mktemp("packages") / "with a space"
    sources = folder / "a clone"
    for name in (*SOURCES, CONFIGURATION):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, sources)
    made = folder / "made"
    run_outside([sys.executable, "-m", "build", "--outdir", made, sources])
    (archive,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
    return Packages(archive, wheel)


def product_files() -> set[str]:
    """Those that a user needs: neither tests nor the pages of those who work on them."""
    listed = subprocess.run(
        ["git", "ls-files", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = (line for line in listed.stdout.splitlines() if not line.endswith(".md"))
    return {each for each in files if "tests" not in each.split("/")}


def configuration_files() -> set[str]:
    files = (path for path in (ROOT / CONFIGURATION).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in files}


def test_both_hold_each_file_of_the_product_and_its_configuration_and_no_test(packages):
    with zipfile.ZipFile(packages.wheel) as opened:
        in_wheel = {name for name in opened.namelist() if ".dist-info/" not in name}
    with tarfile.open(packages.archive) as opened:
        in_archive = {name.partition("/")[2] for name in opened.getnames()}
    shared = f"{packages.wheel.name.partition('-py3')[0]}.data/data/share/headrace/"
    configuration = configuration_files()
    assert "conf/container/Containerfile" in configuration
    assert in_wheel == product_files() | {f"{shared}{each}" for each in configuration}
    assert (product_files() | configuration) - in_archive == set()
    assert [name for name in in_archive if "/tests/" in name] == []


def test_an_index_takes_them(packages):
    said = run_outside([sys.executable, "-m", "twine", "check", "--strict", *packages])
    assert said.count("PASSED") == len(packages)


@in_full
def test_an_environment_and_a_cluster_live_in_folders_with_spaces(packages, tmp_path):
    environment = Environment(tmp_path / "an environment", interpreter(), packages.wheel, "")
    folder, stopped = tmp_path / "a cluster", False
    said = environment.run("headrace", "up", "--dir", folder, "--port", "0", "--detach")
    (servers,) = re.findall(r"bootstrap servers: (\S+)", said)
    at = ("--bootstrap-server", servers)
    try:
        environment.run("headrace", "topics", "create", "lines", *at)
        produced = subprocess.run(
            [environment.python.with_name("headrace"), "produce", "lines", *at],
            input="one\ntwo\n", capture_output=True, text=True, cwd="/",
        )  # fmt: skip
        assert produced.returncode == 0, produced.stderr
        environment.run("headrace", "down", "--dir", folder)
        stopped = True
        environment.run("headrace", "up", "--dir", folder, "--detach")
        stopped = False
        read = environment.run("headrace", "consume", "lines", *at, "--max", "2")
        assert read.splitlines() == ["one", "two"]
    finally:
        if not stopped:
            environment.run("headrace", "down", "--dir", folder)
    template = environment.python.parents[1] / "share" / "headrace" / "conf" / "server.properties"
    assert template.read_text() == (ROOT / "conf" / "server.properties").read_text()
