"""`headrace up --registry` and `headrace schemas`, as a user types them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_registry.tests.registry_support import Client, record
from integration_tests.support.command_line import cluster_json, fail, processes_of, succeed


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("up")
    arguments = ("--brokers", 1, "--port", 0, "--no-console", "--detach")
    told = succeed("up", "--dir", folder, *arguments, "--registry")
    try:
        assert f"registry: {cluster_json(folder)['registry']}" in told
        yield folder
    finally:
        succeed("down", "--dir", folder)
        assert processes_of(folder) == []


def test_the_address_in_cluster_json_is_that_of_a_registry(directory) -> None:
    client = Client(cluster_json(directory)["registry"])
    assert client.get("/config") == {"compatibilityLevel": "BACKWARD"}
    client.close()


def test_schemas_are_registered_listed_shown_checked_and_deleted(directory, tmp_path) -> None:
    where = ("--cluster", directory)
    first, second = tmp_path / "first.avsc", tmp_path / "second.avsc"
    first.write_text(record("A", "a"))
    second.write_text(record("A", "a", "b"))
    told = succeed("schemas", "register", "clicks-value", first, *where, "--json")
    schema_id = json.loads(told)["id"]
    rows = json.loads(succeed("schemas", "list", *where, "--json"))
    assert rows == [{"subject": "clicks-value", "version": 1, "id": schema_id, "type": "AVRO"}]
    assert "clicks-value" in succeed("schemas", "list", *where)
    for which in (("clicks-value",), ("--id", schema_id)):
        shown = json.loads(succeed("schemas", "show", *which, *where))
        assert shown == json.loads(record("A", "a"))
    assert succeed("schemas", "check", "clicks-value", first, *where) == "compatible\n"
    assert "is incompatible" in fail("schemas", "register", "clicks-value", second, *where)
    assert "not found" in fail("schemas", "show", "nobody", *where)
    assert "version 1 (softly" in succeed("schemas", "delete", "clicks-value", *where)
    assert json.loads(succeed("schemas", "list", *where, "--json")) == []
    told = succeed("schemas", "delete", "clicks-value", "--permanent", *where)
    assert "version 1 (permanently)" in told


def test_the_registry_comes_back_with_its_cluster_on_its_address(directory) -> None:
    before = cluster_json(directory)
    succeed("down", "--dir", directory)
    assert cluster_json(directory)["registry_pid"] is None
    succeed("up", "--dir", directory, "--no-console", "--detach")
    after = cluster_json(directory)
    assert (after["registry"], after["registry_pid"] is None) == (before["registry"], False)
    client = Client(after["registry"])
    assert client.get("/subjects", deleted="true") == []
    client.close()
