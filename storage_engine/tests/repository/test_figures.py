"""The repository keeps to its own habits (CONTRIBUTING.md), as `.ci/figures.py` counts them."""

import configparser
import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DESIGN_BYTES = 8 * 1024
MOST_LINES = {"README.md": 150, "CHANGELOG.md": 64, "docs/measurements.md": 150}


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("figures", ROOT / ".ci" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.figures(ROOT)
    return found


def test_every_citation_leads_somewhere(figures):
    assert figures["citations that lead nowhere, by file"] == {}


def test_no_class_name_stands_twice_in_the_product(figures):
    assert figures["class names twice"] == {}


def test_no_port_has_any(figures):
    assert figures["Any in ports"] == 0


def test_documents_are_short(figures):
    lines = figures["lines of documents"]
    assert {name: lines[name] for name in MOST_LINES if lines[name] > MOST_LINES[name]} == {}
    assert figures["wide cells of tables, by document"] == {}
    long = {name: size for name, size in figures["DESIGN.md bytes"].items() if size > DESIGN_BYTES}
    assert long == {}


@pytest.mark.parametrize(
    ("section", "counted"),
    [
        ("lines", "product lines by package"),
        ("types", "Any, cast, object and type: ignore by package"),
    ],
)
def test_no_package_is_above_its_budget(figures, section, counted):
    budgets = configparser.ConfigParser()
    budgets.read(ROOT / ".ci" / "budgets.cfg")
    allowed = {
        package: sum(int(line.split()[0]) for line in text.split("\n") if line)
        for package, text in budgets[section].items()
    }
    found = {name: count for name, count in figures[counted].items() if name != "generated"}
    assert set(found) == set(allowed)
    above = {name: (count, allowed[name]) for name, count in found.items() if count > allowed[name]}
    assert above == {}, "package: (counted, allowed)"


def test_docstrings_name_their_subject(figures):
    assert figures["docstrings that begin with a pronoun, by file"] == {}


def test_no_files_import_one_another(figures):
    assert figures["circles of imports"] == []


def test_folders_can_be_taken_in_at_a_glance(figures):
    """But for those with a file for each API."""
    assert set(figures["folders above 22 entries"]) <= {
        "storage_engine/protocol/apis",
        "storage_engine/protocol/messages",
    }


def test_functions_are_short(figures):
    assert figures["functions above 60 lines"] == {}


def test_files_that_run_first_exist(pytestconfig):
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    assert [name for name in conftest.MEASURED_S if not (ROOT / name).is_file()] == []
