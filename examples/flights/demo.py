"""`make demo`: the whole job on real input, a broker killed on the way, and the result proved.

Rule: exit status 0 means that the result was found exact; no process outlives the demo.
"""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from examples.flights import dataset, report
from examples.flights.display import Display
from examples.flights.failover import Failover
from examples.flights.loader import DAY_MS, Loader
from examples.flights.stream import Stream, StreamError
from examples.flights.topics import Topics
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.cluster_plan import UpRequest
from storage_engine.tools.local_cluster import LocalCluster

PARTITIONS = {"flights": 4, "weather": 4, "delays": 4}
"""Four is the least number for which the hash of Kafka's clients gives each airport its own."""

KILL_AT = 0.4
"""Share of the records that is loaded when the broker is killed."""

_LOOK_SECONDS = 0.1
_DEADLINE_SECONDS = 240
"""For loading and streaming together; they take about a minute."""


def main(arguments: argparse.Namespace) -> int:
    display = Display()
    output: Path = arguments.output
    try:
        return _run(arguments, display, output)
    except (HeadraceError, StreamError, dataset.DatasetError, TimeoutError) as error:
        display.lines(["", f"demo failed: {error}", f"logs and data are in {output}"])
        return 1
    except KeyboardInterrupt:
        display.lines(["", "demo stopped"])
        return 130


def _run(arguments: argparse.Namespace, display: Display, output: Path) -> int:
    directory = output / "cluster"
    for stale in (directory, output / "checkpoint"):
        shutil.rmtree(stale, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    display.event("reading the data set")
    flights, weather = _first_days(arguments.days, dataset.flights(), dataset.weather())
    display.event(f"{len(flights):,} flights and {len(weather):,} weather reports, as JSON next")
    inputs = {
        "flights": (dataset.flight_records(flights), PARTITIONS["flights"]),
        "weather": (dataset.weather_records(weather), PARTITIONS["weather"]),
    }
    with LocalCluster.running(directory, UpRequest(brokers=3, port=0)) as cluster:
        display.event(f"three brokers serve on {cluster.bootstrap_servers}")
        with Topics(cluster.bootstrap_servers, PARTITIONS) as topics:
            topics.create()
            display.event("topics flights, weather and delays created, three replicas each")
            loader = Loader(cluster.bootstrap_servers, inputs, seconds=arguments.seconds)
            failover = Failover(cluster, display.event)
            stream = Stream(cluster.bootstrap_servers, output / "checkpoint", output / "spark.log")
            try:
                loader.start()
                _watch(display, topics, loader, stream, failover)
            finally:
                loader.stop()
                stream.stop()
            display.event("loaded and streamed; now reading everything back")
            findings = report.examine(topics, flights, weather)
    chart = output / "delays.png"
    report.draw(findings, chart)
    display.table("What happened", report.happened(loader, stream.progress, findings))
    display.table("The failover as a client saw it", failover.rows(loader.days))
    display.lines(["", f"chart: {chart}", *report.verdict(findings)])
    if not findings.exact:
        return 1
    for data in (directory, output / "checkpoint"):
        shutil.rmtree(data, ignore_errors=True)
    return 0


def _watch(
    display: Display, topics: Topics, loader: Loader, stream: Stream, failover: Failover
) -> None:
    """Until all is loaded and streamed and the killed broker is back."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    display.event("Spark starts; the year is loaded day by day, in event time order")
    ends: dict[str, dict[str, int]] | None = None
    while True:
        stream.check()
        if loader.error is not None:
            raise loader.error
        failover.step(topics.view())
        batches = stream.progress.batches
        if failover.killed_at is None and batches and loader.share >= KILL_AT:
            failover.kill(topics.view())
        if ends is None and not loader.is_alive():
            ends = topics.ends(["flights", "weather"])
            display.event("everything is in the log")
        if ends is not None and failover.over and stream.progress.has_read(ends):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {_DEADLINE_SECONDS} s; see the logs")
        display.progress(
            loader.acknowledged,
            loader.total,
            f"loaded {loader.acknowledged:,} at {loader.rate():,.0f}/s, streamed"
            f" {stream.progress.rows:,} in {len(batches)} micro-batches",
        )
        time.sleep(_LOOK_SECONDS)


def _first_days(days: int, flights: pa.Table, weather: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What is scheduled or observed within so many days from the first record on."""
    start = min(flights["scheduled"][0].value, weather["observed"][0].value)
    end = pa.scalar(start + days * (DAY_MS // 1000), pa.timestamp("s"))
    return (
        flights.filter(pc.less(flights["time_hour"].cast(pa.timestamp("s")), end)),
        weather.filter(pc.less(weather["observed"], end)),
    )


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights.demo", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output"), metavar="DIR")
    parser.add_argument("--days", type=int, default=366, help="load the first so many days only")
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="spread the loading over so many seconds"
    )
    return parser.parse_args(arguments)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main(parse_arguments(sys.argv[1:])))
