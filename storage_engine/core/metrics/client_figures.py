"""What a client counts: plain attributes of one connection to a cluster, which its thread changes
and others read.
"""

from storage_engine.core.metrics.histogram import LATENCY_NS, SIZE_BYTES, Histogram

COUNTS = {
    "records_sent": "Records that brokers have acknowledged.",
    "bytes_sent": "Bytes of their batches.",
    "batches_sent": "Batches that brokers have acknowledged.",
    "batches_failed": "Batches that were given up.",
    "send_retries": "Batches that were sent again.",
    "records_read": "Offsets that were read; those of markers and compacted records, too.",
    "bytes_read": "Bytes of batches that were read.",
    "fetches": "Answered fetches.",
    "fetch_errors": "Partitions of fetches that failed; most are asked for again.",
}
"""The counts of a client, with their meaning."""

HISTOGRAMS = {
    "batch_bytes": "Sizes of acknowledged batches.",
    "send_ns": "From when a request with batches is sent to its answer.",
    "fetch_ns": "From when a fetch is sent to its answer; brokers hold it while there is nothing.",
}


class ClientFigures:
    """The figures of one client, from its beginning on."""

    __slots__ = (*COUNTS, *HISTOGRAMS)

    records_sent: int
    bytes_sent: int
    batches_sent: int
    batches_failed: int
    send_retries: int
    records_read: int
    bytes_read: int
    fetches: int
    fetch_errors: int

    def __init__(self) -> None:
        for name in COUNTS:
            setattr(self, name, 0)
        self.batch_bytes = Histogram(SIZE_BYTES)
        self.send_ns = Histogram(LATENCY_NS)
        self.fetch_ns = Histogram(LATENCY_NS)

    def delivered(self, records: int, size: int) -> None:
        """A batch is acknowledged."""
        self.batches_sent += 1
        self.records_sent += records
        self.bytes_sent += size
        self.batch_bytes.observe(size)

    def read(self, records: int, size: int) -> None:
        """Batches of one partition have come."""
        self.records_read += records
        self.bytes_read += size

    def add(self, other: "ClientFigures") -> None:
        """Count for the other one, too."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in HISTOGRAMS:
            getattr(self, name).add(getattr(other, name))
