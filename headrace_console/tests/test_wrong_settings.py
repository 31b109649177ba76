"""What is wrong with a console's settings is told when it starts, in one line with the remedy."""

import socket

import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.server import ConsoleServer
from storage_engine.core.errors import ConfigError
from storage_engine.tools.cli import main

SERVERS = "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bootstrap_servers": "nonsense"}, "'nonsense', which is not host:port"),
        ({"bootstrap_servers": ","}, "bootstrap.servers is empty"),
        (
            {"allowed_hosts": ("console.example:8480", "https://x/")},
            "'https://x/' is not HOST:PORT",
        ),
        ({"allowed_hosts": (":::",)}, "':::' is not HOST:PORT"),
        ({"trusted_proxies": ("10.0.0.1", "proxy")}, "'proxy' is not an IP address"),
        ({"address": "127.0.0.2.example.invalid"}, "can be reached by others"),
    ],
)
def test_settings_that_can_not_work_are_refused_before_a_page_is_served(given, words) -> None:
    with pytest.raises(ConfigError, match=words):
        ConsoleServer(ConsoleSettings(**{"bootstrap_servers": SERVERS, "port": 0} | given))


def test_a_port_that_is_in_use_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: .*in use; give another --port"):
            ConsoleServer(ConsoleSettings(bootstrap_servers=SERVERS, port=port))


@pytest.mark.parametrize("percent", ["0", "900", "nan", "-3", "much"])
def test_a_share_of_a_disk_is_a_percentage(percent, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["console", "--bootstrap-servers", SERVERS, "--disk-full-percent", percent])
    assert "--disk-full-percent" in capsys.readouterr().err
