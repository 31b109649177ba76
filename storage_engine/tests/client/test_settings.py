"""Settings that are read from a file of Java's tools."""

import pytest

from storage_engine.client.settings import read_settings_file
from storage_engine.core.errors import ConfigError
from storage_engine.tests.client.security.log_ins import SCRAM_LINE, parsed


def test_a_file_of_javas_tools_is_read(tmp_path):
    module, _, rest = SCRAM_LINE.partition(" required ")
    file = tmp_path / "client.properties"
    file.write_text(
        "# of the tools\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={module} required \\\n  {rest}\n"
        "ssl.keymanager.algorithm=PKIX\n"
        "acks=all\n"
    )
    settings = read_settings_file(file)
    assert settings.keys() == {"security.protocol", "sasl.mechanism", "sasl.jaas.config", "acks"}
    settings.pop("acks")
    assert parsed(settings).sasl.password.reveal() == "hidden-pw"


def test_a_file_with_a_misspelt_name_of_security_is_refused(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.trustore.location=/x\n")
    with pytest.raises(ConfigError, match=r"did you mean 'ssl\.truststore\.location'"):
        read_settings_file(file)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.properties can't be read"):
        read_settings_file(tmp_path / "missing.properties")
