"""Variables of the environment stand for settings."""

import pytest

from storage_engine.core.settings.environment import setting_variables
from storage_engine.core.settings.settings import ALIASES, BY_BROKER_KEY


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("HEADRACE_ZOOKEEPER_CONNECT", "zookeeper.connect"),
        ("HEADRACE_LISTENER_NAME_MY__SSL_SSL_KEYSTORE_LOCATION",
         "listener.name.my_ssl.ssl.keystore.location"),
        ("HEADRACE_LISTENER_NAME_IN_SCRAM___SHA___512_SASL_JAAS_CONFIG",
         "listener.name.in.scram-sha-512.sasl.jaas.config"),
    ],
)  # fmt: skip
def test_a_variable_stands_for_a_setting(variable, setting):
    assert setting_variables({variable: "x"}, []) == {variable: setting}


def test_other_variables_stand_for_none():
    others = {"PATH": "/bin", "KAFKA_BROKER_ID": "1", "headrace_broker_id": "1"}
    assert setting_variables(others, []) == {}


def test_each_setting_of_brokers_has_a_variable():
    names = [*BY_BROKER_KEY, *ALIASES]
    variables = {f"HEADRACE_{name.replace('.', '_').upper()}": name for name in names}
    assert setting_variables(variables, names) == variables
