"""Run the flights job on a year of real input, kill a broker and Spark's driver, prove the result.

Exit status 0 means that the result was found exact; no process outlives the demo.
Example: python -m examples.flights.demo --days 30 --seconds 10 --secure
"""

import argparse
import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from examples.flights import dataset, kafka_client, report
from examples.flights.display import Display
from examples.flights.driver_kill import DriverKill
from examples.flights.failover import Failover
from examples.flights.loader import DAY_MS, Loader
from examples.flights.schemas import FLIGHTS, TOPICS, WEATHER
from examples.flights.stream import ConsoleAddress, Stream, StreamError
from examples.flights.table import DelaysTable
from examples.flights.topics import Topics
from storage_engine.client import HeadraceError, Producer
from storage_engine.client.settings import read_settings_file
from storage_engine.tools.local import cluster_file
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.console_process import HOW_TO_GET_IT, console_is_installed
from storage_engine.tools.local.directory_lock import directory_lock
from storage_engine.tools.local.local_cluster import LocalCluster

PARTITIONS = 4
"""The partitions of each topic. Four is the least number for which the hash of Kafka's clients
gives each airport its own."""

KILL_AT = 0.4
"""Share of the records that is loaded when the broker is killed: the stream is under way."""

CLOSING_MS = 15 * DAY_MS
"""How far the row that completes the last hours is after them: more than `job.LATENESS`."""

_LOOK_SECONDS = 0.1
_DEADLINE_SECONDS = 900
"""The limit for loading and streaming together, which take about a minute and a half."""


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
    directory, checkpoint, chart = output / "cluster", output / "checkpoint", output / "delays.png"
    lake = output / "lake"
    output.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(directory_lock(output, timeout_s=0))
        if cluster_file.exists(directory):
            LocalCluster(directory).down()
        _remove(directory, checkpoint, lake)
        request = UpRequest(brokers=3, port=0, is_secure=arguments.secure)
        cluster = stack.enter_context(LocalCluster.running(directory, request))
        servers, config = cluster.bootstrap_servers, cluster.admin_config(cluster.state)
        how = ", with TLS, log-ins and access rules" if arguments.secure else ""
        display.event(f"three brokers serve on {servers}{how}")
        console = _open_console(cluster, display)
        connecting = {"bootstrap.servers": servers}
        if config is not None:
            connecting |= read_settings_file(config)
        topics = stack.enter_context(Topics(connecting, TOPICS, PARTITIONS))
        topics.create()
        table = _open_table(cluster, lake, display)
        display.event(
            "topics flights, weather and delays made, typed, three replicas each; Spark starts"
        )
        stream = Stream(servers, checkpoint, output / "spark.log", config, console)
        stack.callback(stream.stop)
        flights, weather = _first_days(arguments.days, dataset.flights(), dataset.weather())
        inputs = {
            "flights": dataset.rows(flights, FLIGHTS),
            "weather": dataset.rows(weather, WEATHER),
        }
        producing = {**connecting, "compression.type": "lz4"}
        loader = Loader(lambda: Producer(producing), inputs, seconds=arguments.seconds)
        stack.callback(loader.stop)
        display.event(f"read {len(flights):,} flights and {len(weather):,} weather reports")
        failover = Failover(cluster, display.event)
        driver_kill = DriverKill(stream, display.event)
        _watch(display, topics, loader, stream, failover, driver_kill)
        stream.stop()
        display.event("all is loaded and streamed; now everything is read back and compared")
        as_json = kafka_client.read_json(connecting, flights, PARTITIONS)
        findings = report.examine(topics, flights, weather, as_json)
        if table is not None:
            findings = report.with_table(findings, table)
        report.draw(findings, chart)
        display.event("done; the cluster stops")
    display.table("What happened", report.happened(loader, stream.progress, findings))
    display.table("The failover as a client saw it", failover.rows(loader.days))
    display.table("The kill of the driver", driver_kill.rows())
    display.table("Flights as a client of Kafka's reads them", as_json.rows())
    display.lines(["", f"chart: {chart}", *report.verdict(findings)])
    if not findings.exact:
        return 1
    _remove(directory, checkpoint, lake)
    return 0


def _open_table(cluster: LocalCluster, root: Path, display: Display) -> DelaysTable | None:
    """The results as a table, which the demo does without."""
    table = DelaysTable(root)
    if why := table.open(cluster):
        display.event(f"no table of the results: {why}")
        return None
    display.event(f"the lake writes the topic delays into the Delta table {table.place}")
    return table


def _open_console(cluster: LocalCluster, display: Display) -> ConsoleAddress | None:
    """A page on which to watch the broker die and the stream go on; the demo does without it."""
    if not console_is_installed():
        display.event(f"no page to watch it on: {HOW_TO_GET_IT}")
        return None
    try:
        url = cluster.open_console()
    except HeadraceError as error:
        display.event(str(error))
        return None
    display.event(f"watch it in a browser: {url}")
    entry = cluster.state.console
    token = None
    if entry is not None and entry.progress_token_file is not None:
        token = (cluster.directory / entry.progress_token_file).read_text().strip()
    return ConsoleAddress(url, token)


def _watch(
    display: Display,
    topics: Topics,
    loader: Loader,
    stream: Stream,
    failover: Failover,
    driver_kill: DriverKill,
) -> None:
    """Waits until all records are loaded and streamed, and the killed processes are back."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    ends: dict[str, dict[str, int]] | None = None
    closed = False
    while not (
        closed and failover.over and driver_kill.over and stream.progress.has_written(loader.end_ms)
    ):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {_DEADLINE_SECONDS} s; see the logs")
        time.sleep(_LOOK_SECONDS)
        stream.check()
        loader.check()
        if not loader.started:
            if stream.progress.started:
                display.event("the stream runs; the year is loaded, day by day")
                loader.start()
            else:
                display.progress(0, loader.total, "waiting for Spark")
            continue
        view = topics.view()
        failover.step(view)
        all_is_written = closed and stream.progress.has_written(loader.end_ms)
        driver_kill.step(loader.share, last_chance=all_is_written)
        if stream.progress.batches:
            loader.go_on()
        if failover.killed_at is None and loader.share >= KILL_AT:
            failover.kill(view)
        if ends is None and loader.done:
            ends = topics.ends(["flights", "weather"])
            display.event("everything is in the log")
        if ends is not None and not closed and stream.progress.has_read(ends):
            # The last hours stay open until something later comes; there is no later flight.
            topics.tell_time(ends, loader.end_ms + CLOSING_MS)
            closed = True
        display.progress(loader.acknowledged, loader.total, _progress(loader, stream))


def _progress(loader: Loader, stream: Stream) -> str:
    if loader.holds:
        rate = ", waiting for the stream"
    else:
        rate = "" if loader.done else f" at {loader.rate():,.0f} a second"
    return (
        f"{loader.acknowledged:,} loaded{rate}, {stream.progress.rows:,} streamed in"
        f" {len(stream.progress.batches)} micro-batches"
    )


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _first_days(days: int, flights: pa.Table, weather: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows scheduled or observed within this number of days after the first."""
    first = min(flights["scheduled"][0].as_py(), weather["observed"][0].as_py())
    end = pa.scalar(first + timedelta(days=days), pa.timestamp("us", "UTC"))
    return (
        flights.filter(pc.less(flights["time_hour"], end)),
        weather.filter(pc.less(weather["observed"], end)),
    )


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.flights.demo", description=__doc__)
    output = "directory for the cluster, the logs and the chart (default: demo-output)"
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), metavar="DIR", help=output
    )
    parser.add_argument("--days", type=int, default=366, help="days to load (default 366, all)")
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="seconds that the loading takes (default 40)"
    )
    parser.add_argument(
        "--secure", action="store_true", help="use a cluster with TLS, log-ins and access rules"
    )
    return parser.parse_args(arguments)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # Once: a second Ctrl-C must not break the clean-up off.
    _on_interrupt(signal.SIG_IGN)
    raise KeyboardInterrupt


def _on_interrupt(handler: signal.Handlers | Callable[[int, FrameType | None], NoReturn]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


if __name__ == "__main__":
    _on_interrupt(_interrupt)
    sys.exit(main(parse_arguments(sys.argv[1:])))
