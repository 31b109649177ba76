"""Rows, and a cluster that keeps what is written of them."""

from types import SimpleNamespace

import pyarrow as pa

from connector.options.sink_options import parse_sink_options
from connector.sink.record_writer import write_records


def rows_of(count, value="v"):
    return pa.record_batch({"value": pa.array([value] * count)})


def write(pieces, **options):
    named = {name.replace("__", "."): text for name, text in options.items()}
    return write_records(
        parse_sink_options({"bootstrap.servers": "h:1", "topic": "t"} | named), iter(pieces)
    )


class FakeWriter:
    """Stands for BatchWriter."""

    def __init__(self, cluster, *, acks, transaction, delivery_timeout_ms):
        assert transaction is None
        self.cluster = cluster
        self.flushed = False
        self.announced = set()
        cluster.writers.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def announce(self, partitions):
        self.announced |= set(partitions)

    def append(self, tp, batch):
        assert tp in self.announced
        self.cluster.appended.append((tp, batch))

    def flush(self):
        self.flushed = True


class FakeCluster:
    bootstrap_servers = "h:1"

    def __init__(self):
        self.writers, self.appended = [], []
        self.limit = 0

    def metadata(self, names, *, max_age_ms):
        return SimpleNamespace(topics=dict.fromkeys(names, SimpleNamespace(partitions=(0, 1))))


LIMIT = 10_000
