"""R-CLI6: reports and groups, for which brokers may be slow to answer, hold up no transaction."""

import argparse
import re
from unittest import mock

from storage_engine.client.cluster import Cluster
from storage_engine.mirror.mirror import Mirror, MirrorConfig
from storage_engine.mirror.plan import TopicSelection
from storage_engine.net.deadline import monotonic_ms
from storage_engine.tools.commands import mirror as command


def test_nothing_is_open_while_a_report_is_made():
    config = MirrorConfig(
        name="m", selection=TopicSelection(include=re.compile(".*")), commit_interval_ms=60_000
    )
    with Cluster("127.0.0.1:1") as target:
        mirror = Mirror(target, {}, config, print)
        mirror._refreshed_ms = monotonic_ms()
        mirror._writer, mirror._begun_ms = mock.Mock(), monotonic_ms()
        with mock.patch.object(Mirror, "commit", autospec=True) as commit:
            mirror.step(0)
            assert not commit.called
            mirror.step(0, commits=True)
            assert commit.called


def test_the_command_commits_before_it_reports():
    done = []
    mirror, report = mock.Mock(), mock.Mock()
    mirror.ends.return_value = {}
    mirror.reaches.side_effect = [False, False, True]
    mirror.step.side_effect = lambda _wait_ms, commits: done.append(commits)
    report.show.side_effect = lambda _moved: done.append("shown")
    args = argparse.Namespace(exit_at_end=True, interval=0.0)
    command._run(mirror, None, report, args)
    assert done == [True, "shown", True, "shown", "shown"]
