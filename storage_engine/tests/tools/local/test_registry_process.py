"""The schema registry of a cluster as a child process."""

import json
from dataclasses import replace

import pytest

from storage_engine.tests.tools.local.made_cluster import stopped_cluster
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local import cluster_file, registry_process
from storage_engine.tools.local.cluster_file import RegistryEntry
from storage_engine.tools.local.registry_process import RegistryProcess, registry_is_installed


def test_a_registry_that_ends_at_once_is_told_by_its_last_words(tmp_path):
    cluster = stopped_cluster(tmp_path)
    (tmp_path / "cluster.json").write_text("{}")
    process = RegistryProcess(tmp_path)
    with pytest.raises(CommandError, match=r"the registry did not start: .*cluster\.json.*without"):
        process.start(cluster)
    entry = RegistryEntry(url="http://127.0.0.1:1", pid=None)
    assert process.find(entry) is None
    assert not process.stop(entry)


def test_other_programs_find_its_address_in_the_clusters_file(tmp_path):
    registry = RegistryEntry(url="http://127.0.0.1:8081", pid=411)
    cluster = replace(stopped_cluster(tmp_path), registry=registry)
    cluster_file.write(tmp_path, cluster)
    document = json.loads((tmp_path / "cluster.json").read_text())
    assert (document["registry"], document["registry_pid"]) == ("http://127.0.0.1:8081", 411)
    assert cluster_file.read(tmp_path) == cluster


def test_it_is_installed_with_all_its_packages_or_not_at_all(monkeypatch):
    assert registry_is_installed()
    monkeypatch.setattr(registry_process, "NEEDED", ("starlette", "no_such_package"))
    assert not registry_is_installed()
