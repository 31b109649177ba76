"""Rates, lags and problems, out of two readings of brokers' metrics."""

import io

import pytest
from rich.console import Console

from headrace_console.commands.top import drawn
from headrace_console.top.frames import frame_of
from headrace_console.top.readings import BrokerReading, parse

TOPICS = "kafka_server_brokertopicmetrics_"
REPLICAS = "kafka_server_replicamanager_"


def _reading(name: str, at_s: float, **values: float) -> BrokerReading:
    lines = {
        f"{REPLICAS}leadercount": 3,
        f"{REPLICAS}partitioncount": 5,
        "kafka_controller_kafkacontroller_activecontrollercount": int(name == "1"),
        'kafka_log_log_size{topic="t",partition="0"}': 1_000,
        f'{TOPICS}bytesin_total{{topic="t"}}': values.pop("bytes_in", 0),
        f'{TOPICS}messagesin_total{{topic="t"}}': values.pop("records", 0),
    }
    lines |= values
    text = "".join(f"{key} {value}\n" for key, value in lines.items())
    return BrokerReading(name=name, at_s=at_s, samples=parse(text))


def test_rates_are_what_was_counted_between_two_readings():
    before = [_reading("1", 10, bytes_in=1_000, records=10), _reading("2", 10, bytes_in=500)]
    now = [_reading("1", 12, bytes_in=5_000, records=30), _reading("2", 12, bytes_in=1_500)]
    frame = frame_of(before, now)
    assert [line.in_bytes_s for line in frame.brokers] == [2_000, 500]
    (topic,) = frame.topics
    assert (topic.in_bytes_s, topic.records_s, topic.size_bytes) == (2_500, 10, 2_000)
    assert frame.problems == []


def test_the_first_reading_has_no_rates():
    frame = frame_of([], [_reading("1", 10, bytes_in=1_000)])
    assert frame.brokers[0].in_bytes_s is None
    assert frame.topics[0].in_bytes_s == 0


def test_a_broker_that_was_restarted_has_what_it_has_counted_since():
    frame = frame_of([_reading("1", 10, bytes_in=9_000)], [_reading("1", 12, bytes_in=100)])
    assert frame.brokers[0].in_bytes_s == 50


def test_requests_are_counted_once():
    name = "kafka_network_requestmetrics_requests_total"
    before, now = (
        _reading(
            "1",
            at_s,
            **{
                f'{name}{{request="Produce",version="9"}}': count,
                f'{name}{{request="Fetch",version="11"}}': count,
                f'{name}{{request="FetchConsumer",version="11"}}': count,
            },
        )
        for at_s, count in ((10, 0), (11, 8))
    )
    assert frame_of([before], [now]).brokers[0].requests_s == 16


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({f"{REPLICAS}underreplicatedpartitions": 2}, "2 partitions that broker 1 leads"),
        ({f"{REPLICAS}underminisrpartitioncount": 2}, "refuses acks=all for 2 partitions"),
        ({"kafka_controller_kafkacontroller_offlinepartitionscount": 4}, "4 partitions have no"),
        ({'headrace_log_dir_full{directory="/d"}': 1}, "/d of broker 1 is full"),
        ({"headrace_loop_longest_turn_seconds": 2.5}, "stood still for 2.5 s"),
        (
            {'headrace_partition_open_transaction_seconds{topic="t",partition="0"}': 1000},
            "readers of t-0 have waited for a transaction for 1000 s",
        ),
        ({"kafka_log_logmanager_offlinelogdirectorycount": 1}, "out of service"),
    ],
)
def test_what_is_wrong_is_said_in_words(values, words):
    problems = frame_of([], [_reading("1", 10, **values)]).problems
    assert len(problems) == 1
    assert words in problems[0]


def test_a_broker_that_does_not_answer_is_a_problem_and_the_others_are_shown():
    silent = BrokerReading(name="2", at_s=10, samples={}, problem="Connection refused")
    frame = frame_of([], [_reading("1", 10), silent])
    assert frame.problems == ["broker 2 gives no metrics: Connection refused"]
    assert [line.problem for line in frame.brokers] == [None, "Connection refused"]


def test_groups_and_sinks_are_shown_the_largest_first():
    labels = 'consumergroup="{}",topic="t",partition="{}"'
    lag, seconds = "kafka_consumergroup_lag", "kafka_consumergroup_lag_seconds"
    values = {
        f"{lag}{{{labels.format('small', 0)}}}": 5,
        f"{lag}{{{labels.format('large', 0)}}}": 50,
        f"{lag}{{{labels.format('large', 1)}}}": 70,
        f"{seconds}{{{labels.format('large', 0)}}}": 9,
        f"{seconds}{{{labels.format('large', 1)}}}": 4,
        'headrace_sink_open_members{sink="s"}': 2,
        'headrace_sink_last_batch{sink="s",query="q"}': 7,
    }
    frame = frame_of([], [_reading("1", 10, **values)])
    assert [(line.group, line.lag, line.lag_s) for line in frame.groups] == [
        ("large", 120, 9),
        ("small", 5, None),
    ]
    assert [(line.sink, line.open_members, line.last_batch) for line in frame.sinks] == [
        ("s", 2, 7)
    ]


def test_names_of_clients_are_shown_and_never_obeyed():
    hostile = (
        'kafka_consumergroup_lag{consumergroup="[bold]x[/bold]\x1b[31m",topic="t",partition="0"}'
    )
    frame = frame_of([], [_reading("1", 10, **{hostile: 3})])
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=120, color_system=None).print(drawn(frame))
    assert "[bold]x[/bold]" in out.getvalue()
    assert "\x1b[31m" not in out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_has_the_columns_that_it_has_room_for(width):
    out = io.StringIO()
    frame = frame_of([_reading("1", 10)], [_reading("1", 12, bytes_in=90_000_000)])
    Console(file=out, width=width, color_system=None).print(drawn(frame, width))
    assert "1 *" in out.getvalue()
    assert "45.0 MB" in out.getvalue()
    assert "…" not in out.getvalue()
    assert ("longest turn" in out.getvalue()) == (width == 120)
