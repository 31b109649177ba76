"""Files that are to replace segments: what a start makes of those that a crash has left. R-LOG8,
R-LOG10."""

from pathlib import Path

from storage_engine.log.files.disk import REAL_DISK, RealDisk
from storage_engine.log.segments.swap_files import SwapFiles, finish_swaps

NAMES = [
    f"{offset:020d}{suffix}"
    for offset in (0, 10, 20, 30)
    for suffix in (".log", ".index", ".timeindex", ".txnindex")
]


def test_a_swap_takes_the_place_of_all_segments_of_its_range(tmp_path):
    swap = SwapFiles(tmp_path, 10, 30).swap
    others = [f"{10:020d}.snapshot", f"{20:020d}.log.deleted", "leader-epoch-checkpoint"]
    for name in (*NAMES, *others):
        (tmp_path / name).write_text("old")
    swap.write_text("new")
    assert finish_swaps(REAL_DISK, tmp_path, [each.name for each in tmp_path.iterdir()])
    kept = [name for name in NAMES if name.startswith((f"{0:020d}", f"{30:020d}"))]
    new = f"{10:020d}.log"
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*kept, *others, new])
    assert (tmp_path / new).read_text() == "new"
    assert not finish_swaps(REAL_DISK, tmp_path, [each.name for each in tmp_path.iterdir()])


def test_files_that_were_not_complete_replace_nothing(tmp_path):
    for path in (*SwapFiles(tmp_path, 0, 10).cleaned(), tmp_path / "0-10.swap"):
        path.write_text("half")
    names = [each.name for each in tmp_path.iterdir()]
    assert not finish_swaps(REAL_DISK, tmp_path, names)
    assert sorted(names) == sorted(each.name for each in tmp_path.iterdir())


class NotingDisk(RealDisk):
    """The real one, with the changes of names."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def remove(self, path: Path) -> None:
        self.steps.append("remove")
        super().remove(path)

    def rename(self, path: Path, target: Path) -> None:
        self.steps.append("rename")
        super().rename(path, target)

    def sync_names(self, descriptor: int) -> None:
        self.steps.append("sync")


def test_the_names_of_the_old_segments_are_gone_before_the_new_one_has_its_own(tmp_path):
    """Else a loss of power could leave both."""
    disk = NotingDisk()
    names = [f"{10:020d}.log", f"{20:020d}.log", SwapFiles(tmp_path, 10, 30).swap.name]
    for name in names:
        (tmp_path / name).touch()
    finish_swaps(disk, tmp_path, names)
    assert disk.steps == ["remove", "remove", "sync", "rename", "sync"]
