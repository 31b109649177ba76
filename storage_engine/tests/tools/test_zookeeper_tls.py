"""TLS towards ZooKeeper, as a file of properties asks for it."""

import ssl
from pathlib import Path

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.tools.local.certificates import make_authority
from storage_engine.tools.local.cluster_file import CA_FILE
from storage_engine.tools.zookeeper_tls import load_zookeeper_tls


def written(directory: Path, text: str) -> Path:
    file = directory / "server.properties"
    file.write_text(text)
    return file


def test_a_file_that_does_not_ask_for_tls_has_none(tmp_path: Path) -> None:
    assert load_zookeeper_tls(written(tmp_path, "broker.id=1\n")) is None


def test_the_server_is_checked_against_the_authority_of_the_file(tmp_path: Path) -> None:
    make_authority(tmp_path)
    text = (
        "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.type=PEM\n"
        f"zookeeper.ssl.truststore.location={tmp_path / CA_FILE}\n"
    )
    context = load_zookeeper_tls(written(tmp_path, text))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def test_an_authority_that_is_not_there_is_told_with_the_file(tmp_path: Path) -> None:
    text = (
        "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.type=PEM\n"
        f"zookeeper.ssl.truststore.location={tmp_path / 'none.pem'}\n"
    )
    file = written(tmp_path, text)
    with pytest.raises(ConfigError, match=r"none\.pem") as caught:
        load_zookeeper_tls(file)
    assert str(caught.value).startswith(f"{file}: ")
