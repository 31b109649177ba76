"""The folder of an export: nothing else is touched, and no other export goes on in it."""

from pathlib import Path
from uuid import UUID

import pytest

from storage_engine.client.fetching.bulk_reader import Split
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.errors import CommandError
from storage_engine.tools.export_folder import ExportFolder, ExportRequest

REQUEST = ExportRequest(topics=("t",), since_ms=None, until_ms=5, isolation="read_committed")


def splits() -> list[Split]:
    tp = TopicPartition("t", 0)
    return [Split(tp=tp, topic_id=UUID(int=7), start_offset=0, end_offset=3)]


def opened(directory: Path) -> ExportFolder:
    return ExportFolder.open(directory, REQUEST, splits)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("notes.txt", "mine", "has files in it, but no export: choose another folder"),
        ("_export.json", "{", "can't be read as an export's"),
        ("_export.json", '{"version": 9}', "is of version 9, this headrace reads 1"),
        ("_export.json", '{"version": 1, "request": {"topics": 3}}', "can't be read"),
    ],
)
def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    with pytest.raises(CommandError, match=complaint):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == text


def test_another_export_does_not_go_on_in_the_folder_of_this_one(tmp_path):
    opened(tmp_path)
    other = ExportRequest(topics=("t", "u"), since_ms=None, until_ms=5, isolation="read_committed")
    with pytest.raises(CommandError, match="has another export, of t until 5, read_committed"):
        ExportFolder.open(tmp_path, other, splits)
