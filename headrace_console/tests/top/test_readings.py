"""Readings of brokers' metrics."""

from headrace_console.top import readings
from headrace_console.top.readings import read_one


def test_an_address_at_which_no_broker_tells_its_metrics_is_a_problem(monkeypatch):
    monkeypatch.setattr(readings, "_fetch", lambda url: "<html>a page</html>")
    reading = read_one("a", "http://a:1/")
    assert reading.problem is not None and "http://a:1/ has none of a broker" in reading.problem

    def refuse(url):
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(readings, "_fetch", refuse)
    assert read_one("a", "http://a:1/").problem == "Connection refused"
