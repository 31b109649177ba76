"""Counters and histograms of a broker and its clients: plain attributes, which a scrape reads.

Each figure only grows, from the start of the process on. Counting takes an addition or two where
the work is done, whether anybody reads them or not; to observe a value in a histogram costs one
search of a tuple.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

NS_PER_MS = 1_000_000

LATENCY_MS = (
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000,
)  # fmt: skip
"""The upper ends of the buckets of request times: from an append in memory to a fetch that waits as
long as clients let it."""

LATENCY_NS = tuple(int(each * NS_PER_MS) for each in LATENCY_MS)

SIZE_BYTES = tuple(float(1 << power) for power in range(8, 27, 2))
"""The upper ends of the buckets of batch sizes: 256 bytes to 64 MiB."""


class Histogram:
    """Invariant: `counts` has one place more than `bounds`, for values above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: the upper ends of the buckets, inclusive, ascending."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total: float = 0
        """The sum of all values."""

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def add(self, other: "Histogram") -> None:
        """Add the values of another histogram with the same bounds."""
        assert self.bounds == other.bounds, "they have the same buckets"
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """Return for each bound, and last for none, how many values are not above it."""
        return list(accumulate(self.counts))

    def quantile(self, share: float) -> float:
        """Return the upper end of the bucket that has the value at `share` (0 to 1) of all; 0 when
        there is none, and the highest bound for what is above."""
        wanted = share * self.count
        if not wanted:
            return 0.0
        below = self.cumulative()
        return self.bounds[min(bisect_left(below, wanted), len(self.bounds) - 1)]


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The codecs of record batches, by their number in a batch's attributes."""

CODEC_BYTE = 22
"""The offset in a batch of the byte with its codec, and the mask of the codec in it."""
CODEC_BITS = 7


class TopicFigures:
    """One topic on one broker. The figures begin anew when it is deleted and created again."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "produces",
        "records_in",
        "replicated_in",
        "replicated_out",
    )

    def __init__(self) -> None:
        self.bytes_in = [0] * (CODEC_BITS + 1)
        """Bytes that producers and coordinators have appended here, by codec."""
        self.records_in = 0
        self.bytes_out = 0
        """Bytes of answers to consumers."""
        self.produces = 0
        """Appends to one partition each; the next three count per partition, too."""
        self.failed_produces = 0
        self.fetches = 0
        """Reads for consumers, not for followers."""
        self.failed_fetches = 0
        self.replicated_in = 0
        """Bytes that a leader has sent this follower."""
        self.replicated_out = 0
        """Bytes that this leader has sent to followers."""

    def appended(self, attributes: int, size: int, records: int) -> None:
        """Count an append of `size` bytes. `attributes`: the first batch's."""
        self.bytes_in[attributes & CODEC_BITS] += size
        self.records_in += records
        self.produces += 1


class FiguresByTopic:
    """The figures of the topics that have a replica on one broker. A topic's figures end with its
    last replica there, whether they were read or not."""

    def __init__(self) -> None:
        self.by_name: dict[str, TopicFigures] = {}
        self._replicas: dict[str, int] = {}
        self.gone = TopicFigures()
        """The sums over topics that have no replica here any more: sums never fall."""

    def join(self, topic: str) -> TopicFigures:
        """Count one more replica of the topic here, and return the topic's figures."""
        self._replicas[topic] = self._replicas.get(topic, 0) + 1
        return self.by_name.setdefault(topic, TopicFigures())

    def leave(self, topic: str) -> None:
        self._replicas[topic] -= 1
        if self._replicas[topic]:
            return
        del self._replicas[topic]
        figures, gone = self.by_name.pop(topic), self.gone
        gone.bytes_in = [a + b for a, b in zip(gone.bytes_in, figures.bytes_in, strict=True)]
        gone.replicated_in += figures.replicated_in
        gone.replicated_out += figures.replicated_out


VERSIONS_MAX = 64
"""More versions than any API has."""


class RequestFigures:
    __slots__ = ("counts", "now_ns", "sample_mask", "times")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns`: a clock that never runs backwards, in nanoseconds."""
        self.now_ns = now_ns
        self.counts = [0] * VERSIONS_MAX
        """The number of requests by version."""
        self.times = Histogram(LATENCY_NS)
        """Times from the start of a request to the hand-over of its answer, in nanoseconds."""
        self.sample_mask = 0
        """Requests are timed whose number has none of these bits. Invariant: one less than a power
        of two."""

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def weight(self) -> int:
        """The number of requests of which one is timed, and counts for all."""
        return self.sample_mask + 1

    def answered(self, begun_ns: int, count: int) -> None:
        """Record the time of a request that was started at `begun_ns`. `count`: the number of
        requests for which it counts, which is `weight` at its start."""
        took_ns = self.now_ns() - begun_ns
        # As `Histogram.observe`, without a call for each request.
        times = self.times
        times.counts[bisect_left(LATENCY_NS, took_ns)] += count
        times.total += took_ns * count


class ThrottleFigures:
    """How often, and for how long in all, clients were held back by one kind of quota."""

    __slots__ = ("count", "wait_ms")

    def __init__(self) -> None:
        self.count = 0
        self.wait_ms = 0


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
        self.batches_sent += 1
        self.records_sent += records
        self.bytes_sent += size
        self.batch_bytes.observe(size)

    def read(self, records: int, size: int) -> None:
        """Count batches of one partition that a fetch has brought."""
        self.records_read += records
        self.bytes_read += size

    def add(self, other: "ClientFigures") -> None:
        """Add the figures of another client."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in HISTOGRAMS:
            getattr(self, name).add(getattr(other, name))
