"""Requests: counts each with its time, and reads the counts."""

from collections.abc import Callable, Iterator

from storage_engine.broker.handlers.api_call import AnyHandler, ApiCall, HandlerTable
from storage_engine.broker.metrics.exposition import Samples
from storage_engine.broker.metrics.replica_figures import PURGATORY_SIZE
from storage_engine.broker.quotas.client_usage import RequestQuotas
from storage_engine.broker.requests.cold_reads import ColdReads
from storage_engine.broker.requests.fetch_sessions import FetchSessions
from storage_engine.broker.requests.fetch_waits import FetchWaits
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.metrics import NS_PER_MS, RequestFigures
from storage_engine.core.ports import Scheduler
from storage_engine.net.server import Server
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchRequest, FetchResponse
from storage_engine.protocol.apis.spec import AnyApi

_REQUESTS = "kafka_network_requestmetrics_"
_CONNECTIONS = "kafka_server_socket_server_metrics_connection_"
TIMED_PER_S = 250
"""The most requests timed a second, and at least half as many, of a kind that comes more often: to
time each would take some 5 % of the time of the smallest."""
LOOK_MS = 1_000
ONLY_PROCESSOR = 0
"""The number of the event loop among Kafka's network processors."""


class RequestCounts:
    """The counts of each API; fetches of consumers and of followers are counted apart."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.by_name: dict[str, RequestFigures] = {}
        self._seen: dict[str, int] = {}
        """The counts at the last call of `weigh`."""
        self._scheduler: Scheduler | None = None

    def start(self, scheduler: Scheduler) -> None:
        """From now on, time frequent kinds of requests by samples."""
        self._scheduler = scheduler
        scheduler.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        self.weigh()
        assert self._scheduler is not None
        self._scheduler.call_later(LOOK_MS, self._look)

    def weigh(self) -> None:
        """Set the sampling of each kind by its rate; called once a second."""
        for name, figures in self.by_name.items():
            count = figures.count
            rate = count - self._seen.get(name, 0)
            figures.sample_mask = (1 << (rate // TIMED_PER_S).bit_length()) - 1
            self._seen[name] = count

    def of(self, name: str) -> RequestFigures:
        return self.by_name.setdefault(name, RequestFigures(self._now_ns))

    def count_all(self, table: HandlerTable) -> None:
        """Count from now on: fetches at the handler, by sender; other APIs at the dispatcher."""
        table.count(lambda spec: None if spec is FETCH else self.of(spec.name))
        table.wrap(self._counted)

    def _counted(self, spec: AnyApi, handler: AnyHandler) -> AnyHandler:
        if spec is not FETCH:
            return handler
        of_consumers, of_followers = self.of("FetchConsumer"), self.of("FetchFollower")

        def counted(call: ApiCall[FetchResponse], request: FetchRequest) -> Steps | None:
            figures = of_followers if request.replica_id >= 0 else of_consumers
            counts = figures.counts
            counts[call.version] = number = counts[call.version] + 1
            if not number & figures.sample_mask:
                call.time(figures)
            return handler(call, request)

        return counted


class ServerFigures:
    """Requests, connections and quotas of a broker."""

    def __init__(
        self,
        counts: RequestCounts,
        server: Server,
        sessions: FetchSessions,
        fetch_waits: FetchWaits,
        cold_reads: ColdReads,
        quotas: RequestQuotas,
    ) -> None:
        self._counts = counts
        self._server = server
        self._sessions = sessions
        self._fetch_waits = fetch_waits
        self._cold_reads = cold_reads
        self._quotas = quotas

    def read(self, samples: Samples) -> Iterator[None]:
        for name, figures in self._counts.by_name.items():
            if figures.count:
                add_requests(samples, name, figures)
                yield
        fetches = [self._counts.by_name[each] for each in ("FetchConsumer", "FetchFollower")]
        if any(each.count for each in fetches):
            add_requests(samples, FETCH.name, _together(fetches))
        server = self._server
        samples.add("kafka_network_requestchannel_requestqueuesize", server.pending)
        for listener in server.ports:
            labels = listener, ONLY_PROCESSOR
            samples.add(f"{_CONNECTIONS}count", server.open_count(listener), *labels)
            opened = server.opened_counts[listener]
            samples.add(f"{_CONNECTIONS}creation_total", opened, *labels)
        samples.add(PURGATORY_SIZE, self._fetch_waits.count, FETCH.name)
        samples.add("headrace_cold_fetch_loads_total", self._cold_reads.loads)
        sessions = len(self._sessions)
        samples.add("kafka_server_fetchsessioncache_numincrementalfetchsessions", sessions)
        for key, figures_of_key in self._quotas.throttles.items():
            samples.add("headrace_quota_throttles_total", figures_of_key.count, key.value)
            seconds = figures_of_key.wait_ms / 1000
            samples.add("headrace_quota_throttle_seconds_total", seconds, key.value)


def add_requests(samples: Samples, name: str, figures: RequestFigures) -> None:
    """Add the counts and times of one kind of request."""
    for version, count in enumerate(figures.counts):
        if count:
            samples.add(f"{_REQUESTS}requests_total", count, name, version)
    samples.add_histogram(f"{_REQUESTS}totaltimems", figures.times, NS_PER_MS, name)


def _together(several: list[RequestFigures]) -> RequestFigures:
    """The sum of several figures."""
    result = RequestFigures(several[0].now_ns)
    for figures in several:
        result.counts = [a + b for a, b in zip(result.counts, figures.counts, strict=True)]
        result.times.add(figures.times)
    return result
