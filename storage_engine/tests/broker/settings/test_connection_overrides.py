"""`max.connections.per.ip.overrides`: its form, and the names in it."""

import pytest

from storage_engine.broker.settings.config import by_address, parse_overrides
from storage_engine.core.errors import ConfigError


def test_hosts_and_addresses_have_numbers_of_their_own():
    entries = ["10.0.0.7:200", "client-9: 0", "[::1]:3"]
    assert parse_overrides(entries) == {"10.0.0.7": 200, "client-9": 0, "::1": 3}


@pytest.mark.parametrize("entry", ["10.0.0.7", ":5", "host:", "host:-1", "host:many"])
def test_another_form_is_one_line_that_names_the_setting(entry):
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides=.*host:number"):
        parse_overrides([entry])


def test_a_host_given_twice_is_refused():
    with pytest.raises(ConfigError, match="host is listed twice"):
        parse_overrides(["host:1", "host:2"])


def test_a_name_counts_as_its_addresses_and_one_without_is_refused():
    assert by_address({"127.0.0.1": 5}) == {"127.0.0.1": 5}
    assert by_address({"localhost": 7})["127.0.0.1"] == 7
    with pytest.raises(ConfigError, match=r"no-such-host\.invalid has no address"):
        by_address({"no-such-host.invalid": 1})
