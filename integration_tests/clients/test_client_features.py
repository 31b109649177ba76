"""The table of clients and features in docs/clients.md is the one of tests that exist."""

import ast
from pathlib import Path

import pytest

from integration_tests.clients.client_features import SEEN, table

FOLDER = Path(__file__).parents[1]
NAMED = sorted({test for seen in SEEN.values() for test in seen.values()})


@pytest.mark.parametrize("named", NAMED)
def test_the_test_that_saw_it_exists(named):
    file, _, name = named.partition("::")
    tree = ast.parse((FOLDER / file).read_text())
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_the_document_has_the_table():
    assert table() in (FOLDER.parent / "docs" / "clients.md").read_text()
