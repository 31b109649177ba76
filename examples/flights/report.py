"""Reads the topics back, checks them, and reports the result of the demo.

Every number printed was counted in the log or measured in this run.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from examples.flights import chart, proof, schemas
from examples.flights.kafka_client import JsonReading
from examples.flights.loader import Loader
from examples.flights.proof import Comparison
from examples.flights.schemas import TopicColumns
from examples.flights.stream import StreamProgress
from examples.flights.table import TOPIC, DelaysTable
from examples.flights.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The rows in the log, compared with the expected rows."""

    flights: Comparison
    weather: Comparison
    json: Comparison
    """Flights as a client of Kafka's reads them."""
    results: Comparison
    records: dict[str, int]
    """Rows in the log by topic, without the closing row."""
    closing: dict[str, int]
    """Rows in the log by topic that only have a time, later than every other: they complete the
    last hours."""
    doubled_inputs: int
    """Flights and weather reports that stand in the log once more than they should."""
    doubled: int
    """Results that stand in the log once more than they should."""
    latest_results: pa.Table
    table: Comparison | None = None
    """The last results by airport and hour in the table; None where there is none."""

    @property
    def exact(self) -> bool:
        comparisons = (self.flights, self.weather, self.json, self.results)
        are_exact = all(each.exact for each in comparisons)
        is_equal = self.table is None or self.table.exact
        return not self.doubled_inputs + self.doubled and are_exact and is_equal


def examine(topics: Topics, flights: pa.Table, weather: pa.Table, as_json: JsonReading) -> Findings:
    """Reads all three topics whole and compares them with the source tables."""
    read = {name: topics.read(name) for name in schemas.TOPICS}
    inputs = {name: _without_closing_row(read[name]) for name in ("flights", "weather")}
    rows = read | inputs
    latest = proof.latest_by_key(rows["delays"], proof.RESULT_KEY)
    return Findings(
        flights=_inputs(flights, rows["flights"], schemas.FLIGHTS, proof.FLIGHT_KEY),
        weather=_inputs(weather, rows["weather"], schemas.WEATHER, proof.WEATHER_KEY),
        json=as_json.compared(flights),
        results=proof.compare(proof.expected_results(flights, weather), latest, proof.RESULT_KEY),
        records={name: len(table) for name, table in rows.items()},
        closing={name: len(read[name]) - len(rows) for name, rows in inputs.items()},
        doubled_inputs=proof.repeats(rows["flights"], proof.FLIGHT_KEY)
        + proof.repeats(rows["weather"], proof.WEATHER_KEY),
        doubled=proof.repeats(rows["delays"], proof.RESULT_KEY),
        latest_results=latest,
    )


def with_table(findings: Findings, table: DelaysTable) -> Findings:
    """The findings with what the table has, once all results are in it."""
    found = table.latest(findings.records[TOPIC])
    return replace(findings, table=proof.compare(findings.latest_results, found, proof.RESULT_KEY))


def _without_closing_row(rows: pa.Table) -> pa.Table:
    """The rows without the closing row, which alone has no hour of the day."""
    return rows.filter(pc.is_valid(rows["hour"]))


def _inputs(
    source: pa.Table, found: pa.Table, topic: TopicColumns, key: tuple[str, ...]
) -> Comparison:
    return proof.compare(source.select(topic.arrow.names), found, key)


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
        closing = findings.closing.get(topic, 0)
        yield (
            f"topic {topic}",
            f"{count:,} rows in the log"
            + (f", and {closing} that completes the last hours" if closing else ""),
        )
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
        f" {weather.expected:,} weather reports stand in the log as in the source file;"
        f" doubled: {findings.doubled_inputs:,}"
    )
    yield (
        f"{word}: {findings.json.equal:,} of {findings.json.expected:,} flights that a client of"
        " Kafka's read as JSON records are those of the source file"
    )
    yield (
        f"{word}: {results.equal:,} of {results.expected:,} results (airport, hour) are equal to"
        " those computed directly from the source file; lost:"
        f" {results.expected - results.equal:,}, doubled: {findings.doubled:,}"
    )
    compared = [
        ("flights", flights),
        ("weather", weather),
        ("flights as JSON", findings.json),
        ("delays", results),
    ]
    if findings.table is not None:
        yield (
            f"{word}: {findings.table.equal:,} of {findings.table.expected:,} results that DuckDB"
            " read from their Delta table are those of the log"
        )
        compared.append(("table", findings.table))
    for name, comparison in compared:
        for difference in comparison.differences:
            yield f"  {name}: {difference}"
