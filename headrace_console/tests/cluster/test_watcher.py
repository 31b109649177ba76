"""The watcher of a cluster: one look for all pages, and what is known while nobody answers."""

import time

import pytest

from headrace_console.cluster.upstream import Upstream
from headrace_console.cluster.watcher import ClusterWatcher
from headrace_console.tests.console_support import NOWHERE, within
from headrace_console.tests.records.appended import append
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import api_versions, fetch, list_offsets, metadata
from storage_engine.tests.client.fake_cluster import Fault

SERVED = (api_versions, fetch, list_offsets, metadata)
TP = TopicPartition("t", 0)

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@pytest.fixture
def watcher(fake):
    """Of brokers that serve little else than offsets, as others than ours may."""
    fake.api_versions = {each.API.key: each.API.versions for each in SERVED}
    fake.add_topic("t", [1, 2])
    append(fake, b"a", b"b")
    upstream = Upstream(fake.bootstrap_servers, None, user=None)
    watcher = ClusterWatcher(upstream, for_ever=False)
    yield watcher
    watcher.close()
    upstream.close()


def looked(watcher):
    """A snapshot of a look that begins now."""
    watcher.look_soon()
    return watcher.snapshot(newer_than_ms=int(time.time() * 1000))


def test_a_snapshot_has_what_brokers_serve_and_leaves_out_what_they_do_not(watcher):
    seen = watcher.snapshot()
    assert seen.metadata.brokers.keys() == {1, 2, 3}
    assert seen.ends[TP] == (0, 2, 2)
    assert (seen.silent, seen.gone, seen.groups) == ({}, {}, None)
    assert (watcher.kind, watcher.cluster_id()) == ("kafka", "fake")


def test_pages_share_a_snapshot_and_a_change_is_seen_at_once(watcher, fake):
    seen = watcher.snapshot()
    assert watcher.snapshot() is seen
    append(fake, b"c")
    fake.move_leader("t", 1, 3)
    now = looked(watcher)
    assert now.ends[TP].high_watermark == 3
    assert "leader" in {event.kind for event in watcher.changes.events()}
    assert now.rates[TP] > 0


def test_a_broker_that_hangs_is_silent_and_hides_nothing_of_the_others(watcher, fake):
    watcher.snapshot()
    fake.fault = lambda asked: Fault.SILENCE if asked.broker_id == 2 else None
    seen = within(30, lambda: found if (found := looked(watcher)).silent else None, "silence")
    assert set(seen.silent) == {2}
    assert seen.ends[TP].high_watermark == 2
    fake.fault = lambda _: None
    within(30, lambda: not looked(watcher).silent, "an answer")


@pytest.mark.slow
def test_when_nobody_answers_the_last_snapshot_stays_with_its_time(watcher, fake):
    before = watcher.snapshot()
    for broker in (1, 2, 3):
        fake.stop_broker(broker)
    watcher.look_soon()
    seen = within(30, lambda: found if (found := watcher.snapshot()).silent else None, "silence")
    assert set(seen.silent) == {1, 2, 3}
    assert seen.at_ms >= before.at_ms and seen.ends == before.ends


@pytest.mark.slow
def test_a_cluster_that_never_answered_is_an_error_and_a_page_is_shown_all_the_same():
    upstream = Upstream(NOWHERE, None, user=None)
    watcher = ClusterWatcher(upstream, for_ever=False)
    with pytest.raises(HeadraceError, match=NOWHERE):
        watcher.snapshot()
    assert watcher.cluster_id() is None
    watcher.close()
    upstream.close()
