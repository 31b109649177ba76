"""A scrape of a real broker over simulated ports: its pieces are short, and a part that fails is
left out. Source: R-MET1, R-MET3."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker import unexpected
from storage_engine.broker.handlers.api_call import ApiCall, HandlerTable
from storage_engine.broker.metrics.end_offsets import ASK_MS, EndOffsets
from storage_engine.broker.metrics.exposition import Samples
from storage_engine.broker.metrics.replica_figures import (
    GROUPS_MAX,
    GROUPS_PER_STEP,
    ControllerFigures,
    GroupFigures,
    ReplicaFigures,
    TransactionFigures,
)
from storage_engine.broker.metrics.request_figures import TIMED_PER_S, RequestCounts
from storage_engine.broker.metrics.scrapes import FigureSource, Scrapes
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.group import Group
from storage_engine.core.ids import TopicPartition
from storage_engine.core.metrics import RequestFigures
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.tests.machine import slowness

PARTITIONS = 200
DELETED = 40
TOLD = 1_000
PIECE_MAX_S = 0.005
SCRAPE_MAX_S = 0.050
TP = TopicPartition("t", 0)


def _sources(cluster: SimulatedCluster, broker: int) -> dict[str, FigureSource]:
    parts = cluster[broker].parts
    replicas, clock = parts.replicas, parts.ports.clock
    return {
        "replicas": ReplicaFigures(replicas.manager, replicas.fetchers, clock),
        "controller": ControllerFigures(parts.cluster.controller),
        "groups": GroupFigures(
            parts.coordinators.groups,
            replicas.manager,
            EndOffsets(parts.cluster.metadata, parts.ports.transport, clock),
            clock,
        ),
        "transactions": TransactionFigures(parts.coordinators.transactions, clock),
    }


def _values(text: str) -> dict[str, float]:
    """Sums over the labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def _timed(pieces: Iterator[str]) -> list[tuple[str, float]]:
    """Each piece, and the processor time that it took; the last one is empty, and is its end."""
    found: list[tuple[str, float]] = []
    while True:
        begun_s = time.thread_time()
        piece = next(pieces, None)
        found.append((piece or "", time.thread_time() - begun_s))
        if piece is None:
            return found


def test_a_scrape_of_many_partitions_is_short_and_its_pieces_are_shorter(cluster):
    cluster.create_topic("t", PARTITIONS)
    hosted = cluster[1].parts.replicas.manager
    cluster.loop.run_until(lambda: len(list(hosted)) == PARTITIONS)
    scrapes = Scrapes(_sources(cluster, 1))
    "".join(scrapes.text("text/plain"))
    # The least of three: the machine may do something else at any moment.
    runs = [_timed(scrapes.text("text/plain")) for _ in range(3)]
    text = "".join(piece for piece, _ in runs[0])
    times_s = [min(each_s) for each_s in zip(*([s for _, s in run] for run in runs), strict=True)]
    slow = slowness()
    assert _values(text)["kafka_server_replicamanager_partitioncount"] == PARTITIONS
    assert max(times_s) < PIECE_MAX_S * slow
    assert sum(times_s) * TOLD / PARTITIONS < SCRAPE_MAX_S * slow
    assert len(text) * TOLD / PARTITIONS < 2_000_000


def test_a_part_that_fails_is_left_out_and_counted(cluster, caplog, monkeypatch):
    monkeypatch.setattr(unexpected, "is_fatal", False)

    class Broken:
        def read(self, samples: Samples) -> Iterator[None]:
            samples.add("kafka_brokers", 3)
            yield
            raise ValueError("on purpose")

    scrapes = Scrapes({"broken": Broken(), **_sources(cluster, 1)})
    for count in (1, 2):
        found = _values("".join(scrapes.text("text/plain")))
        assert found["headrace_scrape_errors_total"] == count
        assert "kafka_server_replicamanager_partitioncount" in found
    assert "a scrape of broken" in caplog.text


def test_the_counts_of_a_topic_end_with_it_and_the_sums_do_not_fall(topic):
    leader = topic.state(TP).leader
    scrapes = Scrapes(_sources(topic, leader))
    before = _values("".join(scrapes.text("text/plain")))
    assert before["kafka_server_brokertopicmetrics_messagesin_total"] == 1
    assert before["kafka_server_brokertopicmetrics_replicationbytesout_total"] > 0
    topic.answer(topic.delete_topic("t"))
    topic.loop.run_until(lambda: TP not in topic[leader].logs.logs)
    kept = topic[leader].parts.replicas.manager.figures
    assert not kept.by_name, "nothing is kept of it, whether anybody scrapes or not"
    assert not kept._replicas
    after = _values("".join(scrapes.text("text/plain")))
    assert "kafka_server_brokertopicmetrics_messagesin_total" not in after
    for name in (
        "headrace_bytes_in_total",
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
    ):
        assert after[name] == before[name]


@pytest.mark.parametrize("killed", [2, 3])
def test_what_is_out_of_sync_is_told_by_the_leader(topic, killed):
    leader = topic.state(TP).leader
    killed = killed if killed != leader else 1
    topic[killed].kill()
    topic.loop.run_until(lambda: len(topic.state(TP).isr) == 2)
    topic.loop.run_for(2_000)
    found = _values("".join(Scrapes(_sources(topic, topic.state(TP).leader)).text("text/plain")))
    assert found["kafka_cluster_partition_underreplicated"] == 1
    assert found["kafka_server_replicamanager_underreplicatedpartitions"] == 1
    assert found["kafka_cluster_partition_insyncreplicascount"] == 2


def test_ends_of_partitions_without_a_replica_here_are_asked_of_their_leaders(tmp_path):
    cluster = SimulatedCluster(tmp_path, 4)
    try:
        cluster.create_topic("t")
        for payload in (b"first", b"second"):
            cluster.produced(TP, payload)
        elsewhere = next(each for each in cluster.brokers if TP not in each.logs.logs)
        parts = elsewhere.parts
        ends = EndOffsets(parts.cluster.metadata, parts.ports.transport, parts.ports.clock)
        assert ends.of(TP) is None
        ends.ask()
        cluster.loop.run_for(1_000)
        assert ends.of(TP) == 2
        cluster.produced(TP, b"third")
        ends.ask()
        cluster.loop.run_for(1_000)
        assert ends.of(TP) == 2, "leaders are not asked at each scrape"
        cluster.loop.run_for(ASK_MS)
        ends.ask()
        cluster.loop.run_for(1_000)
        assert ends.of(TP) == 3
        for broker in cluster.brokers:
            if broker is not elsewhere:
                broker.kill()
        cluster.loop.run_for(120_000)
        assert ends.of(TP) is None, "what was heard long ago is told no more"
    finally:
        cluster.close()


def _answered(call: Any, _request: object) -> None:
    call.answer()


class _Call:
    """As much of an `ApiCall` as timing takes."""

    time = ApiCall.time

    def __init__(self, version: int = 9) -> None:
        self.version = version
        self.figures: RequestFigures | None = None
        self.begun_ns = self.weight = 0

    def answer(self) -> None:
        if self.figures is not None:
            self.figures.answered(self.begun_ns, self.weight)


def _counts() -> RequestCounts:
    clock = iter(range(0, 10**9, 1_000))
    return RequestCounts(lambda: next(clock))


def test_of_many_fetches_only_some_are_timed_and_count_for_all():
    counts = _counts()
    table = HandlerTable()
    table.add(FETCH, _answered)
    counts.count_all(table)
    handler, figures = table.get(FETCH.key).handler, counts.of("FetchConsumer")
    request = SimpleNamespace(replica_id=-1)

    def fetch(number: int) -> None:
        for _ in range(number):
            handler(_Call(), request)

    fetch(10)
    assert figures.times.count == 10
    fetch(8 * TIMED_PER_S)
    counts.weigh()
    timed = figures.times.count
    fetch(4_096)
    assert figures.count == 10 + 8 * TIMED_PER_S + 4_096
    assert figures.times.count == timed + 4_096
    assert figures.weight == 16
    counts.weigh()
    counts.weigh()
    fetch(8)
    assert figures.weight == 1


def test_a_request_counts_for_as_many_as_when_it_was_taken_up():
    counts = _counts()
    figures = counts.of("FetchConsumer")
    call = _Call()
    call.time(figures)
    figures.counts[9] += 8 * TIMED_PER_S
    counts.weigh()
    call.answer()
    assert figures.times.count == 1


@pytest.mark.parametrize("rate", [1, 249, 250, 999, 40_000])
def test_a_kind_of_request_is_timed_some_hundreds_of_times_a_second_at_most(rate):
    counts = _counts()
    figures = counts.of("Produce")
    figures.counts[9] += rate
    counts.weigh()
    assert min(rate, TIMED_PER_S // 2) <= rate / figures.weight <= TIMED_PER_S


def test_a_topic_that_is_deleted_during_a_scrape_spoils_nothing(cluster):
    cluster.create_topic("t", DELETED)
    hosted = cluster[1].parts.replicas.manager
    cluster.loop.run_until(lambda: len(list(hosted)) == DELETED)
    scrapes = Scrapes(_sources(cluster, 1))
    pieces = scrapes.text("text/plain")
    begun = [next(pieces), next(pieces)]
    cluster.answer(cluster.delete_topic("t"))
    cluster.loop.run_until(lambda: TP not in cluster[1].logs.logs)
    found = _values("".join([*begun, *pieces]))
    assert "headrace_scrape_errors_total" not in found
    assert found["kafka_server_replicamanager_partitioncount"] == DELETED


def test_groups_beyond_a_number_are_counted_only_and_many_do_not_hold_the_loop():
    coordinator = object.__new__(GroupCoordinator)
    count = GROUPS_MAX + 5_000
    coordinator.groups = {str(each): Group(group_id=str(each)) for each in range(count)}
    ends = SimpleNamespace(ask=lambda: None)
    clock = SimpleNamespace(wall_ms=lambda: 0)
    samples = Samples()
    figures = GroupFigures([coordinator], SimpleNamespace(), ends, clock)
    steps = sum(1 for _ in figures.read(samples))
    assert steps >= count // GROUPS_PER_STEP
    text = "".join(samples.text(open_metrics=False))
    assert text.count("kafka_consumergroup_members{") == GROUPS_MAX
    assert f"numgroups {count}\n" in text
