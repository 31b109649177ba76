"""What a record costs in a cluster: calls, which are the same on every machine."""

from simulation import record_steps


def test_a_record_costs_no_more_calls_than_it_did_and_its_steps_are_told(tmp_path):
    """Calls are the same on every machine. The bounds are a tenth above what they were."""
    steps = record_steps.RecordSteps(tmp_path)
    try:
        rows = steps.rows(10)
    finally:
        steps.close()
    assert steps.acknowledged == steps.consumed == record_steps.WARM_UP + 2 * 10
    assert {(row.broker, row.step) for row in rows} == {
        ("leader", record_steps.READ),
        ("leader", record_steps.WAKE),
        ("leader", record_steps.ACKNOWLEDGE),
        ("leader", record_steps.CONSUME),
        ("follower", record_steps.TAKE),
    }
    calls = {"leader": 0.0, "follower": 0.0}
    for row in rows:
        calls[row.broker] += row.times * row.calls
    assert calls["leader"] < 1460
    assert calls["follower"] < 277
