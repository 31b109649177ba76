"""The folder of `headrace zookeeper`: what is written, kept, and refused in one line."""

import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from storage_engine.core.errors import HeadraceError
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.tools.local.zookeeper_server import PreparedServer, ServerRequest, prepare

HOST = "127.0.0.1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "zk"


@pytest.fixture
def ports() -> list[int]:
    found: set[int] = set()
    while len(found) < 7:
        found.add(find_free_port(HOST, avoid=found))
    return sorted(found)


@pytest.fixture
def three(ports) -> Iterator[str]:
    yield ",".join(f"{i}={HOST}:{ports[2 * i - 2]}:{ports[2 * i - 1]}" for i in (1, 2, 3))


def prepared(folder: Path, ports: list[int], **changes: object) -> PreparedServer:
    """Its lock is free again, as after the server's end."""
    server = prepare(ServerRequest(directory=folder, port=ports[6], **changes))
    os.close(server.lock)
    return server


def refused(folder: Path, ports: list[int], **changes: object) -> str:
    with pytest.raises(HeadraceError) as caught:
        prepared(folder, ports, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_that_was_there_keeps_its_rights(folder, ports):
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    prepared(folder, ports)
    assert mode(folder) == 0o755
    assert {mode(each) for each in folder.iterdir()} == {0o600}


def test_what_is_written_is_for_its_owner_alone(folder, ports, three):
    server = prepared(folder, ports, id=2, ensemble=three)
    assert server.command[-1] == str(folder / "zoo.cfg")
    assert (folder / "myid").read_text() == "2\n"
    assert mode(folder) == 0o700
    assert {mode(each) for each in folder.iterdir()} == {0o600}
    assert server.warnings == ()


def test_the_port_is_of_this_machine_only_unless_asked(folder, ports):
    assert prepared(folder, ports).place == f"{HOST}:{ports[6]}"
    server = prepared(folder, ports, listen="0.0.0.0")
    assert server.warnings[0].startswith("without TLS whoever reaches 0.0.0.0 may end every")


def test_a_config_that_was_changed_by_hand_is_kept(folder, ports):
    prepared(folder, ports)
    config = folder / "zoo.cfg"
    config.write_text(config.read_text().replace("tickTime=200", "tickTime=400"))
    changed = config.read_text()
    assert refused(folder, ports).startswith(f"{config} was changed by hand: keep it with --keep")
    with socket.create_server((HOST, ports[6])):
        server = prepared(folder, ports, keeps_config=True)
    assert server.place == f"the ports of {config}"
    assert "netty-handler" in " ".join(server.command), "it may ask for TLS"
    assert config.read_text() == changed


def test_other_options_are_written_as_long_as_nobody_changed_it(folder, ports):
    prepared(folder, ports)
    prepared(folder, ports, settings=(("snapCount", "7"),))
    assert "snapCount=7\n" in (folder / "zoo.cfg").read_text()


def test_a_server_does_not_change_sides(folder, ports, three):
    prepared(folder, ports, id=1, ensemble=three)
    config = (folder / "zoo.cfg").read_text()
    assert "is server 1 of its ensemble, not 2" in refused(folder, ports, id=2, ensemble=three)
    assert "is server 1 of an ensemble of 3: give --id 1" in refused(folder, ports)
    assert (folder / "zoo.cfg").read_text() == config
    shutil.rmtree(folder)
    prepared(folder, ports)
    assert "the data of a ZooKeeper of its own" in refused(folder, ports, id=1, ensemble=three)


def test_ids_that_fit_no_ensemble_are_refused(folder, ports, three):
    assert "give --ensemble, too" in refused(folder, ports, id=1)
    assert "needs --id" in refused(folder, ports, ensemble=three)
    error = refused(folder, ports, id=4, ensemble=three)
    assert error == "--id 4 is no server of --ensemble, which has 1, 2, 3"
    assert not folder.exists()


def test_ports_in_use_are_refused_and_nothing_is_written(folder, ports, three):
    for port in (ports[6], ports[1]):
        with socket.create_server((HOST, port)):
            error = refused(folder, ports, id=1, ensemble=three)
        assert error.startswith(f"port {port} of {HOST} can't be used for ZooKeeper")
    assert not (folder / "zoo.cfg").exists()


def test_a_folder_in_use_is_refused(folder, ports):
    server = prepare(ServerRequest(directory=folder, port=ports[6]))
    try:
        assert os.get_inheritable(server.lock)
        assert refused(folder, ports) == (
            f"a ZooKeeper runs already on {folder}: stop it first, or give another --dir"
        )
    finally:
        os.close(server.lock)


def test_a_host_without_an_address_is_refused(folder, ports):
    error = refused(folder, ports, id=1, ensemble="1=no.such.host.invalid,2=h2,3=h3")
    assert error.startswith("the host 'no.such.host.invalid' of server 1 has no address here")


def test_without_java_it_is_told(folder, ports, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "Java was not found" in refused(folder, ports)


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, Path]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("zk")
    key = tmp_path / "key.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(str(key))
    key.chmod(0o600)
    return {"keystore": key, "truststore": tmp_path / "ca.pem"}


def test_keys_that_cannot_be_used_are_refused(folder, ports, tls, tmp_path):
    pkcs1 = tls["keystore"].read_text()
    assert "has no key in PKCS#8" in refused(folder, ports, **tls)
    tls["keystore"].write_text(f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{pkcs1}")
    assert "has an encrypted key" in refused(folder, ports, **tls)
    tls["keystore"].chmod(0o640)
    assert refused(folder, ports, **tls) == (
        f"--tls-keystore {tls['keystore']} has a key that others may read: "
        f"chmod 600 {tls['keystore']}"
    )
    assert "belong together" in refused(folder, ports, keystore=tls["keystore"])
    absent = tmp_path / "absent.pem"
    assert "can't be read: No such file" in refused(
        folder, ports, keystore=absent, truststore=tls["truststore"]
    )


@pytest.mark.parametrize("heap", ["lots", "0m", "12", "1t"])
def test_a_heap_that_is_no_size_is_refused(folder, ports, heap):
    assert refused(folder, ports, heap=heap) == (
        f"--heap '{heap}' is no size: give it as 512m or 2g"
    )
