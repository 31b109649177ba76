"""Ports that no outgoing connection takes."""

from pathlib import Path

import pytest

from storage_engine.tools.local import free_ports


def test_free_ports_lie_below_those_of_outgoing_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = tmp_path / "ip_local_port_range"  # that of this machine may leave none below
    ports.write_text("13000\t60999\n")
    monkeypatch.setattr(free_ports, "_EPHEMERAL_RANGE", ports)
    port = free_ports.find_free_port("127.0.0.1")
    assert free_ports.LOWEST_FREE_PORT <= port < 13_000
    assert free_ports.is_port_free("127.0.0.1", port)
