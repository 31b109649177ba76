"""What `cordoned.log.dirs` may say, and which log dirs it names. Source: KIP-1066."""

from pathlib import Path

import pytest

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.cordoned_log_dirs import named_log_dirs
from storage_engine.core.errors import ConfigError

LOG_DIRS = (Path("/a"), Path("b"))


@pytest.mark.parametrize(
    ("cordoned", "named"),
    [
        ((), set()),
        (("/a",), {Path("/a")}),
        (("*",), {Path("/a"), Path("b").absolute()}),
        (("b", "/not-here"), {Path("b").absolute()}),
    ],
)
def test_log_dirs_are_named_by_path_or_all_at_once(cordoned, named):
    assert named_log_dirs(cordoned, LOG_DIRS) == named


def test_a_broker_does_not_start_with_what_is_no_log_dir():
    given = {
        "broker.id": "1",
        "log.dirs": "/a,/b",
        "zookeeper.connect": "zk:2181",
        "cordoned.log.dirs": "/a,/c",
    }
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.from_mapping(given)
    assert str(raised.value) == (
        "cordoned.log.dirs=/a,/c: /c is not in log.dirs: name some of /a, /b, or * for all"
    )
    assert BrokerConfig.from_mapping(given | {"cordoned.log.dirs": "*"}).log_dirs
