"""The address of a console."""

import socket

import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.server import ConsoleServer
from storage_engine.core.errors import ConfigError

SERVERS = "127.0.0.1:9092"


def test_a_port_that_is_in_use_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: .*in use; give another --port"):
            ConsoleServer(ConsoleSettings(bootstrap_servers=SERVERS, port=port))
