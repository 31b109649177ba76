"""The arguments of `headrace console`."""

import pytest

from storage_engine.tools.cli import main

SERVERS = "127.0.0.1:9092"


@pytest.mark.parametrize("percent", ["0", "900", "nan", "-3", "much"])
def test_a_share_of_a_disk_is_a_percentage(percent, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["console", "--bootstrap-servers", SERVERS, "--disk-full-percent", percent])
    assert "--disk-full-percent" in capsys.readouterr().err
