"""The arguments of `headrace console`."""

import pytest

from storage_engine.tools.cli import main

SERVERS = "127.0.0.1:9092"


@pytest.mark.parametrize("url", ["registry:8081", "ftp://registry", "http://registry/?x=1"])
def test_a_registry_has_a_url(url, capsys) -> None:
    assert main(["console", "--bootstrap-servers", SERVERS, "--registry", url]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"headrace: --registry '{url}': ") and errors.count("\n") == 1


@pytest.mark.parametrize("percent", ["0", "900", "nan", "-3", "much"])
def test_a_share_of_a_disk_is_a_percentage(percent, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["console", "--bootstrap-servers", SERVERS, "--disk-full-percent", percent])
    assert "--disk-full-percent" in capsys.readouterr().err
