"""The security of a client is a value: compared, sent to other processes, and never shown."""

import pickle

from storage_engine.client.security.client_security import NO_SECURITY
from storage_engine.tests.client.security.log_ins import LOG_IN, parsed


def test_nothing_given_is_no_security():
    assert parsed({}) == NO_SECURITY
    assert parsed({"security.protocol": "PLAINTEXT"}) == NO_SECURITY


def test_what_the_protocol_does_not_use_is_left_alone():
    assert parsed({**LOG_IN, "security.protocol": "PLAINTEXT"}) == NO_SECURITY


def test_the_value_can_be_compared_and_sent_and_is_not_shown():
    security = parsed({**LOG_IN, "ssl.key.password": "hidden-pw"})
    assert pickle.loads(pickle.dumps(security)) == security
    assert hash(security) == hash(parsed({**LOG_IN, "ssl.key.password": "hidden-pw"}))
    assert security != parsed({**LOG_IN, "sasl.password": "another"})
    assert "hidden-pw" not in repr(security)
    assert "hidden-pw" not in f"{security.sasl} {security.tls}"
