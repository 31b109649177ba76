"""Reads the topics back, checks them, and reports the result of the demo.

Every number printed was counted in the log or measured in this run.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from examples.flights import chart, dataset, proof
from examples.flights.loader import Loader
from examples.flights.proof import Comparison
from examples.flights.stream import StreamProgress
from examples.flights.topics import Content, Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What stands in the log, against what must stand there."""

    flights: Comparison
    weather: Comparison
    results: Comparison
    records: dict[str, int]
    """Records in the log by topic, the closing record included."""
    doubled: int
    """Results that stand in the log once more than they should."""
    latest_results: pa.Table

    @property
    def exact(self) -> bool:
        comparisons = (self.flights, self.weather, self.results)
        return not self.doubled and all(each.exact for each in comparisons)


def examine(topics: Topics, flights: pa.Table, weather: pa.Table) -> Findings:
    """Reads all three topics whole and compares them with the source tables."""
    contents = {name: topics.read(name) for name in ("flights", "weather", "delays")}
    latest = proof.parse(
        proof.latest_by_key(contents["delays"].keys, contents["delays"].values),
        proof.RESULT_SCHEMA,
    )
    return Findings(
        flights=_inputs(
            flights.select(dataset.FLIGHT_COLUMNS), contents["flights"], proof.FLIGHT_KEY
        ),
        weather=_inputs(
            weather.select(dataset.WEATHER_COLUMNS), contents["weather"], proof.WEATHER_KEY
        ),
        results=proof.compare(proof.expected_results(flights, weather), latest, proof.RESULT_KEY),
        records={name: len(content) for name, content in contents.items()},
        doubled=proof.repeats(contents["delays"].keys),
        latest_results=latest,
    )


def _inputs(source: pa.Table, content: Content, key: tuple[str, ...]) -> Comparison:
    return proof.compare(source, proof.parse(content.values.drop_null(), source.schema), key)


def draw(findings: Findings, path: Path) -> None:
    """The chart, from the results in the log."""
    chart.draw(findings.latest_results, path)


def happened(
    loader: Loader, stream: StreamProgress, findings: Findings
) -> Iterator[tuple[str, str]]:
    """Records and rates, as rows of a table."""
    seconds = loader.days[-1].acknowledged_at - loader.days[0].sent_at
    flush_ms = statistics.median(day.seconds for day in loader.days) * 1000
    yield (
        "loaded",
        f"{loader.acknowledged:,} records in {seconds:.1f} s"
        f" ({loader.acknowledged / seconds:,.0f} a second, paced and held up by the failover),"
        " every one acknowledged by all in-sync replicas",
    )
    yield (
        "a day of records",
        f"acknowledged within {flush_ms:.0f} ms (median of {len(loader.days)})",
    )
    for topic, count in findings.records.items():
        yield f"topic {topic}", f"{count:,} records in the log"
    batches = [batch for batch in stream.batches if batch.rows]
    if batches:
        batch_ms = statistics.median(batch.milliseconds for batch in batches)
        seconds = sum(batch.milliseconds for batch in batches) / 1000
        yield (
            "streamed",
            f"{stream.rows:,} rows in {len(batches)} micro-batches, {batch_ms:,.0f} ms each"
            f" (median), {stream.rows / seconds:,.0f} rows a second",
        )
    yield "late rows dropped", f"{stream.late:,}"


def verdict(findings: Findings) -> Iterator[str]:
    """The last lines of the demo."""
    word = "exact" if findings.exact else "WRONG"
    flights, weather, results = findings.flights, findings.weather, findings.results
    yield (
        f"{word}: {flights.equal:,} of {flights.expected:,} flights and {weather.equal:,} of"
        f" {weather.expected:,} weather reports stand in the log as in the source file"
    )
    yield (
        f"{word}: {results.equal:,} of {results.expected:,} results (airport, hour) are equal to"
        " those computed directly from the source file; lost:"
        f" {results.expected - results.equal:,}, doubled: {findings.doubled:,}"
    )
    for name, comparison in (("flights", flights), ("weather", weather), ("delays", results)):
        for difference in comparison.differences:
            yield f"  {name}: {difference}"
