"""The table of the settings of security, and which of them are secret."""

import pytest

from storage_engine.client import Admin, Consumer, ConsumerConnector, Producer
from storage_engine.client.security.security_rows import (
    JAVA_ONLY,
    SECRET_KEYS,
    SECURITY_KEYS,
    SECURITY_SETTINGS,
)
from storage_engine.core.errors import ConfigError
from storage_engine.tests.client.security.log_ins import LOG_IN


@pytest.mark.parametrize("client", [Admin, Producer, Consumer, ConsumerConnector])
def test_every_client_knows_them_and_shows_no_secret(client):
    place = {"bootstrap.servers": "127.0.0.1:1"}
    if client is ConsumerConnector:
        place = {"zookeeper.connect": "127.0.0.1:1", "group.id": "g"}
    made = client({**place, **LOG_IN})
    assert "hidden-pw" not in repr(made)
    assert "hidden-pw" not in repr(getattr(made, "_config", None))
    made.close()
    with pytest.raises(ConfigError) as raised:
        client({**place, **LOG_IN, "sasl.mechanism": "PLANE"})
    assert "hidden-pw" not in str(raised.value)


def test_the_names_are_those_of_the_table():
    assert {setting.name for setting in SECURITY_SETTINGS} == SECURITY_KEYS
    assert SECRET_KEYS <= SECURITY_KEYS
    assert not JAVA_ONLY & SECURITY_KEYS
