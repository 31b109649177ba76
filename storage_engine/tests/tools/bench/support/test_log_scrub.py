"""The costs of the scrubber, at a small size."""

from benchmarks.support import log_scrub


def test_a_scrub_has_a_cost_and_an_effect_on_appends_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(log_scrub, "_APPENDS", 20)
    cost, beside = log_scrub.measure(tmp_path, size=4 << 20, rounds=1)
    assert cost.what.startswith("scrub, s of a processor per GB")
    assert beside.what.startswith("append of 16 KiB batches beside a scrub of ")
    assert cost.measured > 0 and beside.measured > 0 and beside.limit is not None
    assert not list(tmp_path.rglob("*.log"))
