"""The policy of deletion that `log.deletion.policy` names."""

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.retained.retention import KafkaDeletionPolicy
from storage_engine.log.log_config import load_policy


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("kafak", "it must be kafka, or of the form module:Class"),
        ("no.such.module:Policy", "ModuleNotFoundError: No module named"),
        (f"{__name__}:NoSuchClass", "AttributeError"),
        ("storage_engine.tests.log.support:ManualClock", "it has no method count_deletable"),
        ("storage_engine.log.log_config:LogConfig.x", "it can't be made"),
        (":Policy", "it must be kafka"),
    ],
)
def test_a_policy_that_can_not_be_had_is_one_line(name, reason):
    with pytest.raises(ConfigError) as raised:
        load_policy(name)
    text = str(raised.value)
    assert text.startswith(f"log.deletion.policy={name}: ")
    assert reason in text
    assert "\n" not in text


def test_kafkas_policy_is_the_default():
    assert isinstance(load_policy("kafka"), KafkaDeletionPolicy)
