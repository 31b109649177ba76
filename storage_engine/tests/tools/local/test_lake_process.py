"""The lake of a cluster as a child process."""

import json
from dataclasses import replace

import pytest

from storage_engine.tests.tools.local.made_cluster import stopped_cluster
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local import cluster_file
from storage_engine.tools.local.cluster_file import LakeEntry
from storage_engine.tools.local.cluster_web import ClusterWeb
from storage_engine.tools.local.lake import lake_process
from storage_engine.tools.local.lake.lake_process import (
    LakeProcess,
    absolute_root,
    lake_is_installed,
)

LAKE = LakeEntry(root="/lake", url="http://127.0.0.1:9480", pid=None)


def test_a_lake_that_ends_at_once_is_told_by_its_last_words(tmp_path):
    cluster = stopped_cluster(tmp_path)
    (tmp_path / "cluster.json").write_text("{}")
    process = LakeProcess(tmp_path)
    with pytest.raises(CommandError, match=r"the lake did not start: .*cluster\.json.*without"):
        process.start(cluster, "/lake")
    assert process.find(LAKE) is None
    assert not process.stop(LAKE)


def test_other_programs_find_its_root_in_the_clusters_file(tmp_path):
    cluster = replace(stopped_cluster(tmp_path), lake=replace(LAKE, pid=411))
    cluster_file.write(tmp_path, cluster)
    document = json.loads((tmp_path / "cluster.json").read_text())
    assert document["lake"] == {"root": "/lake", "url": LAKE.url, "pid": 411}
    assert cluster_file.read(tmp_path) == cluster


def test_a_lake_that_runs_keeps_its_root(tmp_path):
    cluster = replace(stopped_cluster(tmp_path), lake=replace(LAKE, pid=411))
    web = ClusterWeb(tmp_path)
    assert web.with_lake(cluster, None) is cluster
    assert web.with_lake(cluster, "/lake") is cluster
    with pytest.raises(CommandError, match="runs with the root /lake; stop the cluster first"):
        web.with_lake(cluster, "/elsewhere")


def test_a_root_is_a_whole_path_or_a_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_root("lake") == str(tmp_path / "lake")
    assert absolute_root("s3://bucket/lake") == "s3://bucket/lake"


def test_it_is_installed_with_all_its_packages_or_not_at_all(monkeypatch):
    assert lake_is_installed()
    monkeypatch.setattr(lake_process, "NEEDED", ("deltalake", "no_such_package"))
    assert not lake_is_installed()
