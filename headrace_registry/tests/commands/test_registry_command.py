"""The arguments and settings of `headrace registry`: what is wrong gets one line."""

import pytest

from storage_engine.tools.cli import main

BROKERS = ("--bootstrap-server", "127.0.0.1:1")
SECURED = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.username=u
sasl.password=p
"""


def refusal(capsys, *arguments: object, status: int) -> str:
    assert main(["registry", *map(str, arguments)]) == status
    errors = capsys.readouterr().err
    assert errors.startswith("headrace: ")
    assert errors.count("\n") == 1
    return errors


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "--cluster and --bootstrap-server"),
        ((*BROKERS, "--cluster", "x"), 2, "--cluster and --bootstrap-server"),
        ((*BROKERS, "--listen", "8081"), 2, "--listen '8081' is not HOST:PORT"),
        ((*BROKERS, "--listen", "a:70000"), 2, "--listen"),
        ((*BROKERS, "--advertise", "a:0"), 2, "--advertise"),
        ((*BROKERS, "--session-timeout", "soon"), 2, "--session-timeout"),
        ((*BROKERS, "--session-timeout", "0.1"), 1, "session timeout"),
        ((*BROKERS, "--certificate", "x"), 1, "--certificate and --key go together"),
        ((*BROKERS, "--ca", "/nowhere", "--listen", "127.0.0.1:0"), 1, "--ca /nowhere"),
        ((*BROKERS, "--listen", "203.0.113.1:8081"), 1, "can't listen on 203.0.113.1:8081"),
        (("--cluster", "/nowhere"), 1, "headrace up"),
    ],
)
def test_wrong_arguments_are_told(capsys, arguments, status, words) -> None:
    assert words in refusal(capsys, *arguments, status=status)


def test_a_setting_of_the_file_that_is_not_one_is_told(capsys, tmp_path) -> None:
    file = tmp_path / "registry.conf"
    file.write_text("bootstrap-server=127.0.0.1:1\nlisten-on=x\n")
    assert "'listen-on' is not a setting" in refusal(capsys, "--config", file, status=1)


def test_options_count_above_the_file(capsys, tmp_path) -> None:
    file = tmp_path / "registry.conf"
    file.write_text("cluster=/nowhere\nlisten=127.0.0.1:0\n")
    words = refusal(capsys, "--config", file, *BROKERS, "--session-timeout", "0", status=1)
    assert "session timeout is 0 ms" in words


def test_passwords_are_not_taken_over_networks_in_clear(capsys, tmp_path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(SECURED)
    arguments = (*BROKERS, "--command-config", config, "--listen", "0.0.0.0:0")
    assert "give --certificate and --key" in refusal(capsys, *arguments, status=1)


def test_the_mechanism_of_the_registry_must_have_passwords(capsys, tmp_path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.oauthbearer.token.endpoint.url=https://127.0.0.1:1/token\n"
        "sasl.oauthbearer.client.credentials.client.id=x\n"
        "sasl.oauthbearer.client.credentials.client.secret=y\n"
    )
    words = refusal(capsys, *BROKERS, "--command-config", config, status=1)
    assert "sasl.mechanism is OAUTHBEARER" in words
