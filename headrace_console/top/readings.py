"""Reads the metrics pages of all brokers in parallel; a broker that does not answer has a problem
in the place of metrics."""

import http.client
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT_S = 3.0
ANSWER_MAX_BYTES = 64 << 20

LabelSet = tuple[tuple[str, str], ...]
Samples = Mapping[str, Mapping[LabelSet, float]]
"""Values by metric name and labels."""

TOPICS = "kafka_server_brokertopicmetrics_"
REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
NAMES = (
    f"{TOPICS}bytesin_total",
    f"{TOPICS}bytesout_total",
    f"{TOPICS}messagesin_total",
    f"{REPLICAS}partitioncount",
    f"{REPLICAS}leadercount",
    f"{REPLICAS}underreplicatedpartitions",
    f"{REPLICAS}underminisrpartitioncount",
    f"{CONTROLLER}activecontrollercount",
    f"{CONTROLLER}offlinepartitionscount",
    "kafka_network_requestmetrics_requests_total",
    "kafka_log_log_size",
    "kafka_log_logmanager_offlinelogdirectorycount",
    "kafka_consumergroup_lag",
    "kafka_consumergroup_lag_seconds",
    "headrace_partition_open_transaction_seconds",
    "headrace_loop_busy_ratio",
    "headrace_loop_longest_turn_seconds",
    "headrace_log_dir_free_bytes",
    "headrace_log_dir_full",
    "headrace_sink_open_members",
    "headrace_sink_batches_waiting",
    "headrace_sink_last_batch",
    "process_resident_memory_bytes",
)
"""The metrics that are shown; other lines are not parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReading:
    """One broker's metrics, or the reason why there are none."""

    name: str
    at_s: float
    """The monotonic time of the reading."""
    samples: Samples
    problem: str | None = None

    def total(self, metric: str, **labels: str) -> float:
        """Return the sum of the metric's samples with these labels."""
        wanted = labels.items()
        return sum(
            value
            for found, value in self.samples.get(metric, {}).items()
            if wanted <= dict(found).items()
        )

    def by(self, metric: str, *names: str) -> dict[tuple[str, ...], float]:
        """Return the metric's sums by the values of these labels."""
        sums: dict[tuple[str, ...], float] = {}
        for found, value in self.samples.get(metric, {}).items():
            labels = dict(found)
            key = tuple(labels[name] for name in names)
            sums[key] = sums.get(key, 0) + value
        return sums


def read_all(urls: Mapping[str, str]) -> list[BrokerReading]:
    """Read all brokers' metrics, from their addresses by broker name."""
    if not urls:
        return []
    with ThreadPoolExecutor(len(urls)) as pool:
        return list(pool.map(read_one, urls.keys(), urls.values()))


def read_one(name: str, url: str) -> BrokerReading:
    """Read one broker's metrics; an error becomes the reading's `problem`."""
    at_s = time.monotonic()
    try:
        samples = parse(_fetch(url))
        if not samples:
            raise ValueError(f"{url} has none of a broker; give the address that its log names")
        return BrokerReading(name=name, at_s=at_s, samples=samples)
    except (OSError, http.client.HTTPException, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return BrokerReading(name=name, at_s=at_s, samples={}, problem=problem)


def _fetch(url: str) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path or "/metrics", headers={"Accept": "text/plain"})
        answer = connection.getresponse()
        text = answer.read(ANSWER_MAX_BYTES).decode("utf-8", "replace")
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"answered {answer.status}: {text.strip()[:200]}")
    return text


def parse(text: str, names: Sequence[str] = NAMES) -> Samples:
    """Return the samples of these metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    wanted = set(names)
    lines = [line for line in text.split("\n") if _name_of(line) in wanted]
    found: dict[str, dict[LabelSet, float]] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            labels = tuple(sample.labels.items())
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def _name_of(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]
