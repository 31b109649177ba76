"""The text of a scrape, read by the library's parsers."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from storage_engine.broker.metrics.exposition import OPEN_TYPE, TEXT_TYPE, Samples, media_type_for
from storage_engine.core.metrics import NS_PER_MS, Histogram

HOSTILE = 'a"b\\c\nd{}=,é\x00'


def _samples() -> Samples:
    samples = Samples()
    samples.add("kafka_brokers", 3)
    samples.add("headrace_quota_throttles_total", 7, "request_percentage")
    samples.add("kafka_consumergroup_members", 2, HOSTILE)
    times = Histogram([1 * NS_PER_MS, 5 * NS_PER_MS])
    for ms in (0.5, 1, 3, 60):
        times.observe(int(ms * NS_PER_MS))
    samples.add_histogram("kafka_network_requestmetrics_totaltimems", times, NS_PER_MS, "Fetch")
    return samples


def _read(text: str, parse) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    return {
        sample.name: {
            tuple(each.labels.items()): each.value
            for each in family.samples
            if each.name == sample.name
        }
        for family in parse(text)
        for sample in family.samples
    }


def test_both_formats_say_the_same():
    text = "".join(_samples().text(open_metrics=False))
    other = "".join(_samples().text(open_metrics=True)) + "# EOF\n"
    assert _read(text, prometheus) == _read(other, open_metrics)
    assert len(_read(text, prometheus)) == 6


def test_a_label_may_have_any_characters():
    found = _read("".join(_samples().text(open_metrics=False)), prometheus)
    assert found["kafka_consumergroup_members"] == {(("consumergroup", HOSTILE),): 2}


def test_buckets_count_all_that_is_not_above_them():
    found = _read("".join(_samples().text(open_metrics=False)), prometheus)
    name = "kafka_network_requestmetrics_totaltimems"
    buckets = {dict(labels)["le"]: count for labels, count in found[f"{name}_bucket"].items()}
    assert buckets == {"1.0": 2, "5.0": 3, "+Inf": 4}
    assert list(found[f"{name}_sum"].values()) == [64.5]
    assert list(found[f"{name}_count"].values()) == [4]


def test_what_has_no_sample_is_left_out():
    assert "kafka_log_log_size" not in "".join(_samples().text(open_metrics=True))


def test_a_quantile_is_the_bound_of_its_bucket():
    times = Histogram([1, 5, 10])
    assert times.quantile(0.99) == 0
    for value in (1, 1, 4, 400):
        times.observe(value)
    assert [times.quantile(share) for share in (0.5, 0.75, 1)] == [1, 5, 10]


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("", TEXT_TYPE),
        ("*/*", TEXT_TYPE),
        ("text/plain; version=1.0.0; escaping=allow-utf-8", TEXT_TYPE),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2", OPEN_TYPE),
        ("application/openmetrics-text; version=1.7.3", OPEN_TYPE),
        ("application/openmetrics-text; version=x", TEXT_TYPE),
        ("application/openmetrics-text; version=0.0.1, text/plain", TEXT_TYPE),
    ],
)
def test_whatever_a_client_accepts_there_are_two_types_of_answers(accept, media_type):
    assert media_type_for(accept) == media_type
