"""The jars and the options of a ZooKeeper server's JVM."""

import os
import socket
from pathlib import Path

import pytest

from storage_engine.zookeeper.server.program import (
    ZooKeeperServerError,
    check_port_is_free,
    class_path,
    embedded_options,
    is_serving,
    production_options,
)


def names(path: str) -> list[str]:
    return [Path(each).name for each in path.split(os.pathsep)]


def test_a_small_server_has_five_jars_and_tls_and_a_log_bring_more():
    assert len(names(class_path())) == 5
    with_tls = names(class_path(with_tls=True))
    assert any(name.startswith("netty-handler-4") for name in with_tls)
    assert not any(name.startswith("log4j") for name in with_tls)
    logging = names(class_path(with_log=True))
    assert any(name.startswith("log4j-slf4j2-impl-") for name in logging)


def test_a_missing_pyspark_is_told(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ZooKeeperServerError, match="pip install pyspark"):
        class_path()


def test_only_a_server_of_tests_may_leave_syncing_out(tmp_path):
    options = production_options(tmp_path, heap="1g", log_config=tmp_path / "log")
    assert "-Xmx1g" in options
    assert "-Xms1g" in options
    small = embedded_options(tmp_path, unsafe_no_fsync=False, heap_mib=64)
    assert not any("forceSync" in each for each in [*options, *small])
    unsafe = embedded_options(tmp_path, unsafe_no_fsync=True, heap_mib=64)
    assert "-Dzookeeper.forceSync=no" in unsafe


def test_a_port_in_use_is_told_and_serves_no_zookeeper():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ZooKeeperServerError) as caught:
            check_port_is_free("127.0.0.1", port)
    assert str(caught.value) == (
        f"port {port} of 127.0.0.1 can't be used for ZooKeeper (Address already in use): "
        "choose another"
    )
    check_port_is_free("127.0.0.1", port)
    assert not is_serving("127.0.0.1", port)


def test_a_host_of_another_machine_is_told():
    with pytest.raises(ZooKeeperServerError, match="Cannot assign requested address"):
        check_port_is_free("192.0.2.1", 2181)
