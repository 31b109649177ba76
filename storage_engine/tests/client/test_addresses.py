"""`bootstrap.servers`: a list of addresses, or refused."""

import pytest

from storage_engine.client.addresses import address_text, parse_addresses
from storage_engine.core.errors import ConfigError


@pytest.mark.parametrize(
    "servers", ["", " , ", "localhost", "localhost:", ":9092", "h:0", "h:70000", "h:x", "a:b:1"]
)
def test_a_wrong_list_is_refused_by_the_name_of_its_setting(servers):
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        parse_addresses(servers)


def test_an_address_counts_once_and_ipv6_stands_in_brackets():
    found = parse_addresses("[::1]:9092, localhost:9093,, [::1]:9092")
    assert found == [("::1", 9092), ("localhost", 9093)]
    assert [address_text(*each) for each in found] == ["[::1]:9092", "localhost:9093"]
