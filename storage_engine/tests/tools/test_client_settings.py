"""`--command-config FILE`: what a command takes of it, and whom it names."""

from pathlib import Path

import pytest

from storage_engine.client.cluster import DEADLINE_MS
from storage_engine.core.errors import ConfigError
from storage_engine.tools.client_settings import connect, file_settings, security_in

NOWHERE = "127.0.0.1:1"


def config(directory: Path, text: str) -> Path:
    file = directory / "client.properties"
    file.write_text(text)
    return file


def test_settings_of_producers_and_consumers_are_left_alone(tmp_path: Path) -> None:
    file = config(tmp_path, "client.id=mine\nacks=nonsense\ngroup.id=g\nlinger.ms=x\n")
    assert file_settings(file) == {"client.id": "mine"}
    assert file_settings(None) == {}
    assert security_in(None) is None


def test_times_of_the_file_count_and_else_those_of_the_command(tmp_path: Path) -> None:
    file = config(tmp_path, "request.timeout.ms=1234\ndefault.api.timeout.ms=5678\n")
    with connect(NOWHERE, file, request_timeout_ms=1, deadline_ms=2) as cluster:
        assert cluster.deadline_ms == 5678
    with connect(NOWHERE, None, request_timeout_ms=1, deadline_ms=2) as cluster:
        assert cluster.deadline_ms == 2
    with connect(NOWHERE, config(tmp_path, "client.id=mine\n")) as cluster:
        assert cluster.deadline_ms == DEADLINE_MS


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("request.timeout.ms=soon\n", "request.timeout.ms"),
        ("security.protocol=SECRET\n", "security.protocol"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=MAGIC\n", "sasl.mechanism"),
    ],
)
def test_a_wrong_value_is_told_with_the_file_before_anything_is_connected(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = config(tmp_path, text)
    for use in (security_in, lambda path: connect(NOWHERE, path)):
        with pytest.raises(ConfigError, match=problem) as caught:
            use(file)
        assert str(caught.value).startswith(f"{file}: ")
        assert "\n" not in str(caught.value)
