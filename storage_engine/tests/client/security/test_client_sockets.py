"""A file or a password that can't be used is told where a client is made."""

import pytest

from storage_engine.client import Admin, Consumer, Producer
from storage_engine.core.errors import ConfigError
from storage_engine.tests.client.security.log_ins import LOG_IN


@pytest.mark.parametrize("client", [Admin, Producer, Consumer])
@pytest.mark.parametrize(
    "wrong",
    [{"ssl.ca.location": "/no/such/ca.pem"}, {"sasl.password": "a\x07b"}],
    ids=["file", "password"],
)
def test_a_file_or_password_that_cannot_be_used_is_told_where_the_client_is_made(client, wrong):
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **LOG_IN, **wrong}
    if client is not Consumer:
        config.pop("group.id")
    with pytest.raises(ConfigError, match=r"/no/such/ca\.pem can't be read|can't be used with"):
        client(config)
