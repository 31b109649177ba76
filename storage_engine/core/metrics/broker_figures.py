"""What a broker counts where it works: plain attributes, which a scrape reads.

Each figure only grows, from the start of the process on. Counting takes an addition or two where
the work is done, whether anybody reads them or not.
"""

from bisect import bisect_left
from collections.abc import Callable

from storage_engine.core.metrics.histogram import LATENCY_NS, Histogram

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The codecs of record batches, by their number in a batch's attributes."""

CODEC_BYTE = 22
"""Where a batch has the byte with its codec, and the bits of it."""
CODEC_BITS = 7


class TopicFigures:
    """One topic on one broker. Of a topic that is deleted here and made again they begin anew."""

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
        """Appends of one partition each, and so with the next three."""
        self.failed_produces = 0
        self.fetches = 0
        """Reads for consumers, not those of followers."""
        self.failed_fetches = 0
        self.replicated_in = 0
        """Bytes that a leader has sent this follower."""
        self.replicated_out = 0
        """Bytes that this leader has sent to followers."""

    def appended(self, attributes: int, size: int, records: int) -> None:
        """`attributes`: of the first batch."""
        self.bytes_in[attributes & CODEC_BITS] += size
        self.records_in += records
        self.produces += 1


class FiguresByTopic:
    """The figures of the topics that have a replica on one broker: those of a topic end with its
    last replica there, whether anybody reads them or not."""

    def __init__(self) -> None:
        self.by_name: dict[str, TopicFigures] = {}
        self._replicas: dict[str, int] = {}
        self.gone = TopicFigures()
        """The sums over topics that have no replica here any more: sums never fall."""

    def join(self, topic: str) -> TopicFigures:
        """One more replica of the topic is here."""
        self._replicas[topic] = self._replicas.get(topic, 0) + 1
        return self.by_name.setdefault(topic, TopicFigures())

    def leave(self, topic: str) -> None:
        """One replica less."""
        self._replicas[topic] -= 1
        if self._replicas[topic]:
            return
        del self._replicas[topic]
        figures, gone = self.by_name.pop(topic), self.gone
        gone.bytes_in = [a + b for a, b in zip(gone.bytes_in, figures.bytes_in, strict=True)]
        gone.replicated_in += figures.replicated_in
        gone.replicated_out += figures.replicated_out


VERSIONS_MAX = 64
"""More than any API has."""


class RequestFigures:
    """One kind of request on one broker."""

    __slots__ = ("counts", "now_ns", "sample_mask", "times")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns`: a clock that never runs backwards, in nanoseconds."""
        self.now_ns = now_ns
        self.counts = [0] * VERSIONS_MAX
        """The number of requests by version."""
        self.times = Histogram(LATENCY_NS)
        """From when a request was taken up to when its answer was handed over, in nanoseconds."""
        self.sample_mask = 0
        """Requests are timed whose number has none of these bits. Invariant: one less than a power
        of two."""

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def weight(self) -> int:
        """One of so many requests is timed, and counts for all of them."""
        return self.sample_mask + 1

    def answered(self, begun_ns: int, count: int) -> None:
        """A request that was taken up at that time is answered. `count`: for so many it counts, by
        the weight of the time when it was taken up."""
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
