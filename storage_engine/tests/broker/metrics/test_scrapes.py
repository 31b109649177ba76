"""A scrape of a real broker over simulated ports: its pieces are short, and a part that fails is
left out. Source: R-MET1, R-MET3."""

import time
from collections.abc import Iterator

from storage_engine.broker import unexpected
from storage_engine.broker.metrics.exposition import Samples
from storage_engine.broker.metrics.scrapes import Scrapes
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.metrics.scraped import sources, values
from storage_engine.tests.machine import slowness

PARTITIONS = 200

DELETED = 40

TOLD = 1_000

PIECE_MAX_S = 0.005

SCRAPE_MAX_S = 0.050

TP = TopicPartition("t", 0)


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
    scrapes = Scrapes(sources(cluster, 1))
    "".join(scrapes.text("text/plain"))
    # The least of three: the machine may do something else at any moment.
    runs = [_timed(scrapes.text("text/plain")) for _ in range(3)]
    text = "".join(piece for piece, _ in runs[0])
    times_s = [min(each_s) for each_s in zip(*([s for _, s in run] for run in runs), strict=True)]
    slow = slowness()
    assert values(text)["kafka_server_replicamanager_partitioncount"] == PARTITIONS
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

    scrapes = Scrapes({"broken": Broken(), **sources(cluster, 1)})
    for count in (1, 2):
        found = values("".join(scrapes.text("text/plain")))
        assert found["headrace_scrape_errors_total"] == count
        assert "kafka_server_replicamanager_partitioncount" in found
    assert "a scrape of broken" in caplog.text


def test_a_topic_that_is_deleted_during_a_scrape_spoils_nothing(cluster):
    cluster.create_topic("t", DELETED)
    hosted = cluster[1].parts.replicas.manager
    cluster.loop.run_until(lambda: len(list(hosted)) == DELETED)
    scrapes = Scrapes(sources(cluster, 1))
    pieces = scrapes.text("text/plain")
    begun = [next(pieces), next(pieces)]
    cluster.answer(cluster.delete_topic("t"))
    cluster.loop.run_until(lambda: TP not in cluster[1].logs.logs)
    found = values("".join([*begun, *pieces]))
    assert "headrace_scrape_errors_total" not in found
    assert found["kafka_server_replicamanager_partitioncount"] == DELETED
