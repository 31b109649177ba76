"""The brokers of `headrace bench secured`."""

from benchmarks.secured.brokers import OPEN, Place


def test_the_password_of_a_run_is_not_shown(tmp_path):
    place = Place.made(tmp_path)
    assert place.password not in f"{place!r} {place.endpoints({'SASL_SSL': 1, OPEN: 2})!r}"
