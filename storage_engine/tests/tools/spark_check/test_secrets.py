"""Secrets among the settings of a session: they are named, and never shown."""

import pytest

from storage_engine.tools.spark_check.findings import CheckVerdict
from storage_engine.tools.spark_check.secrets import BETTER, REDACTION, holds_secret, judge_secrets

INLINE = ["spark.kafka.sasl.jaas.config", "spark.kafka.ssl.key.password"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("spark.kafka.sasl.jaas.config", True),
        ("spark.mine.SASL.password", True),
        ("ssl.keystore.key", True),
        ("spark.ssl.enabled", False),
        ("spark.kafka.sasl.mechanism", False),
        ("spark.authenticate.secret", False),
    ],
)
def test_a_secret_is_found_under_any_prefix(name, expected):
    assert holds_secret(name) is expected


def test_none_is_good():
    assert judge_secrets([], {}).verdict is CheckVerdict.OK


def test_one_is_advised_to_go_to_a_file_and_to_be_hidden_until_then():
    found = judge_secrets(INLINE, {})
    assert found.verdict is CheckVerdict.ADVICE
    assert found.found == "spark.kafka.sasl.jaas.config, spark.kafka.ssl.key.password"
    assert "client.config.file" in found.remedy
    assert all(name in found.remedy for name in REDACTION)


def test_expressions_that_hide_it_are_left_alone():
    found = judge_secrets(INLINE, dict.fromkeys(REDACTION, BETTER))
    assert "until then" not in found.remedy
    assert "until then" in judge_secrets(INLINE, {"spark.redaction.regex": BETTER}).remedy
