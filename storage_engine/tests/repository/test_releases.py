"""The releases, from which on formats and checkpoints stay readable."""

import configparser
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "integration_tests" / "kept_data"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def releases() -> dict[str, str]:
    """Their commits, by version."""
    found = configparser.ConfigParser()
    found.read(KEPT / "releases.cfg")
    return {version: found[version]["commit"] for version in found.sections()}


def test_each_release_has_left_data_and_a_heading_in_the_changelog(releases):
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert releases
    assert {path.name.removesuffix(".tar.gz") for path in KEPT.glob("*.tar.gz")} == set(releases)
    for version in releases:
        assert f"\n## {version} " in changelog


def test_each_release_is_a_commit_of_this_history(releases):
    try:
        is_shallow = git("rev-parse", "--is-shallow-repository") == "true"
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("this is no repository of git")
    if is_shallow:
        pytest.skip("the history of this clone is cut off: git fetch --unshallow")
    for version, commit in releases.items():
        git("merge-base", "--is-ancestor", commit, "HEAD")
        assert f'__version__ = "{version}"' in git("show", f"{commit}:storage_engine/__init__.py")
