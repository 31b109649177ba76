"""Where the brokers of a local cluster give their metrics."""

from collections.abc import Collection, Mapping

from storage_engine.tools.local.cluster_file import BrokerEntry
from storage_engine.tools.local.cluster_plan import Ports
from storage_engine.tools.local.metrics_ports import with_metrics

BROKERS = tuple(BrokerEntry.for_id(number, "127.0.0.1", 9091 + number) for number in (1, 2))


def _metrics(
    given: Mapping[int, str],
    *,
    taken: Collection[int] = (),
    running: Collection[int] = (),
    any_port: bool = False,
) -> list[str | None]:
    free = iter(range(20_000, 21_000))
    found = with_metrics(
        BROKERS,
        {entry.id: given.get(entry.id) for entry in BROKERS},
        running=running,
        any_port=any_port,
        ports=Ports(
            is_free=lambda host, port: port not in taken,
            find=lambda host, avoid: next(port for port in free if port not in avoid),
        ),
    )
    return [entry.metrics for entry in found]


def test_a_new_broker_has_its_metrics_ten_thousand_ports_above_its_own():
    assert _metrics({}) == ["127.0.0.1:19092", "127.0.0.1:19093"]


def test_a_port_that_is_taken_is_replaced_by_a_free_one():
    assert _metrics({}, taken={19092}) == ["127.0.0.1:20000", "127.0.0.1:19093"]


def test_with_free_ports_those_of_the_metrics_are_free_ones_too():
    assert _metrics({}, any_port=True) == ["127.0.0.1:20000", "127.0.0.1:20001"]


def test_the_port_of_before_stays_while_it_is_free():
    before = {1: "127.0.0.1:19092", 2: "127.0.0.1:7002"}
    assert _metrics(before, any_port=True) == ["127.0.0.1:19092", "127.0.0.1:7002"]
    assert _metrics(before, taken={7002}) == ["127.0.0.1:19092", "127.0.0.1:19093"]


def test_what_a_person_has_written_stays_nothing_too():
    assert _metrics({1: "", 2: "0.0.0.0:9308"}, taken={9308}) == [None, "0.0.0.0:9308"]


def test_a_broker_that_runs_keeps_what_it_has():
    assert _metrics({1: "127.0.0.1:19092"}, taken={19092}, running={1, 2}) == [
        "127.0.0.1:19092",
        None,
    ]
