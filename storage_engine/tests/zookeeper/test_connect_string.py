"""`zookeeper.connect`: what is read, and what is refused."""

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.zookeeper.connect_string import ConnectString


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk", (("zk", 2181),), ""),
        ("a:1,b:2", (("a", 1), ("b", 2)), ""),
        (" a:1 , b:2/x/y/ ", (("a", 1), ("b", 2)), "/x/y"),
        ("[::1]:5/", (("::1", 5),), ""),
    ],
)
def test_connect_strings(text: str, servers: tuple[tuple[str, int], ...], chroot: str) -> None:
    parsed = ConnectString.parse(text)
    assert parsed == ConnectString(servers=servers, chroot=chroot)
    assert ConnectString.parse(str(parsed)) == parsed


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:0", "a:70000", "a:1,,b:2", "a/x//y", "a/../b"])
def test_a_wrong_connect_string_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect="):
        ConnectString.parse(text)
