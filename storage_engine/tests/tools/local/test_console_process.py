"""The console of a cluster as a child process."""

import pytest

from storage_engine.tests.tools.local.made_cluster import stopped_cluster
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local import console_process
from storage_engine.tools.local.cluster_file import ConsoleEntry
from storage_engine.tools.local.console_process import ConsoleProcess, console_is_installed


def test_a_console_that_ends_at_once_is_told_by_its_last_words(tmp_path):
    cluster = stopped_cluster(tmp_path)
    (tmp_path / "cluster.json").write_text("{}")
    process = ConsoleProcess(tmp_path)
    with pytest.raises(CommandError, match=r"the console did not start: .*cluster\.json.*without"):
        process.start(cluster)
    entry = ConsoleEntry(url="http://127.0.0.1:1", port=1, pid=None, progress_token_file=None)
    assert process.find(entry) is None
    assert not process.stop(entry)


def test_it_is_installed_with_all_its_packages_or_not_at_all(monkeypatch):
    assert console_is_installed()
    monkeypatch.setattr(console_process, "NEEDED", ("starlette", "no_such_package"))
    assert not console_is_installed()
