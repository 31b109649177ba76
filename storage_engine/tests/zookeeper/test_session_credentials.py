"""Where the credentials of a session lie for others: a file of the log dir, and a znode."""

import json
from typing import Any

import pytest

from storage_engine.core.ports import ProcessIdentity
from storage_engine.zookeeper.session_credentials import (
    FILE_NAME,
    SessionCredentials,
    SessionZNode,
    load_credentials,
    remove_credentials,
    save_credentials,
)
from storage_engine.zookeeper.znode_json import ZnodeFormatError

OWNER = ProcessIdentity(boot_id="a-1", pid_namespace=5, time_namespace=6, pid=7, start_ticks=8)
CREDENTIALS = SessionCredentials(session_id=-77, password=b"\x00secret")


def test_credentials_are_read_again_until_they_are_removed(tmp_path):
    assert load_credentials(tmp_path) is None
    save_credentials(tmp_path, CREDENTIALS)
    assert load_credentials(tmp_path) == CREDENTIALS
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    remove_credentials(tmp_path)
    assert load_credentials(tmp_path) is None
    remove_credentials(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"session_id": 77}', b"\xff", b"7"])
def test_a_file_that_is_none_of_credentials_is_passed_over(tmp_path, caplog, content):
    (tmp_path / FILE_NAME).write_bytes(content)
    assert load_credentials(tmp_path) is None
    assert "session file ignored" in caplog.text


@pytest.mark.parametrize(
    "changed",
    [
        {"password": "zz"},
        {"session_id": "x"},
        {"place": None},
        {"place": {"boot_id": "another", "device": 1, "inode": 1}},
    ],
)
def test_a_file_that_was_written_elsewhere_or_changed_is_passed_over(tmp_path, changed):
    save_credentials(tmp_path, CREDENTIALS)
    path = tmp_path / FILE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    assert load_credentials(tmp_path) is None


@pytest.mark.parametrize("process", [None, OWNER])
def test_a_session_is_read_from_its_znode_as_it_was_written(process):
    node = SessionZNode(password=b"\x00secret", process=process)
    name = SessionZNode.name(3, -1)
    assert SessionZNode.decode(name, node.encode()) == node
    assert SessionZNode.path(3, -1) == "/headrace/sessions/3-ffffffffffffffff"
    assert SessionZNode.broker_of(name) == 3
    assert "secret" not in repr(node) + repr(CREDENTIALS)


@pytest.mark.parametrize(
    "name", ["", "3", "-1-1f", "3-", "3-1G", "03-1f", "2147483648-1f", "3-1f-1"]
)
def test_a_name_of_another_form_is_no_brokers(name):
    assert SessionZNode.broker_of(name) is None


PROCESS = {
    "boot_id": "460e132e-78e0-480c-8a51-ccc8d29544bf",
    "pid_namespace": 4026531836,
    "time_namespace": 4026531834,
    "pid": 7,
    "start_ticks": 32331,
}


SESSION = {"password": "00" * 16, "process": PROCESS}


BAD_SESSIONS: dict[str, tuple[Any, ...]] = {
    "password": ("", "0", "zz", "00" * 65, 7, None),
    "process": (
        *(None, 7, [], {}),
        *({**PROCESS, "boot_id": value} for value in ("", "x", "\ud800", "0" * 65, 7)),
        *({**PROCESS, "pid": value} for value in (0, -1, 2**22 + 1, "7", 7.5, True)),
        *({**PROCESS, "start_ticks": value} for value in (-1, 2**63, "7")),
        *({**PROCESS, "pid_namespace": value} for value in (-1, 2**64)),
        *({**PROCESS, "time_namespace": value} for value in (-1, 2**64)),
    ),
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in BAD_SESSIONS.items() for value in values]
)
def test_a_znode_that_names_no_session_is_refused_in_one_short_line(key, value):
    data = json.dumps({**SESSION, key: value}).encode()
    with pytest.raises(ZnodeFormatError, match=r"^znode /headrace/sessions/1-1f.*$") as caught:
        SessionZNode.decode("1-1f", data)
    assert len(str(caught.value)) < 500
