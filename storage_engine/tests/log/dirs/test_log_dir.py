"""A log dir has one user: R-CTL4; and it knows whether its machine was restarted."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.world.disk import CrashError, SimulatedDisk
from storage_engine.core.errors import StorageError
from storage_engine.core.ids import NO_TAIL_LOST, TAIL_LOST_NOW, BrokerEpoch, TopicPartition
from storage_engine.log.dirs.log_dir import BrokerLogDir, UnusableLogDirError
from storage_engine.log.files.disk import REAL_DISK, RealDisk
from storage_engine.log.state.checkpoints import (
    HIGH_WATERMARKS_FILE,
    RECOVERY_POINTS_FILE,
    write_offsets,
)


def open_log_dir(path: Path, *, broker_id: int = 1, disk=REAL_DISK):
    return BrokerLogDir(disk, path, broker_id=broker_id)


class RestartedMachine(RealDisk):
    def boot_id(self) -> str:
        return "another boot"


def begun(path: Path) -> None:
    log_dir = open_log_dir(path)
    log_dir.begin()
    log_dir.unlock()


def test_a_new_log_dir_gets_its_papers(tmp_path):
    log_dir = open_log_dir(tmp_path / "data")
    assert (log_dir.is_new, log_dir.was_clean_shutdown, log_dir.same_boot) == (True, False, False)
    log_dir.begin()
    meta = (tmp_path / "data" / "meta.properties").read_text()
    assert meta == "version=1\nbroker.id=1\n"


@pytest.mark.parametrize("crash_after", [None, *range(1, 9)])
def test_the_names_of_a_new_log_dir_and_its_parents_survive_a_loss_of_power(crash_after):
    """A start that is killed on its way leaves names that the next one must sync too."""
    disk = SimulatedDisk(Path("/"))
    path = Path("/srv/broker/data")
    if crash_after is not None:
        disk.crash_after = crash_after
        with contextlib.suppress(CrashError):
            open_log_dir(path, disk=disk).begin()
        disk.kill_process()
    open_log_dir(path, disk=disk).begin()
    disk.lose_power()
    assert set(disk.list_names(path)) >= {"meta.properties", ".boot-id"}


def test_a_log_dir_whose_parents_nobody_may_open_is_used_all_the_same():
    """An administrator has made it, and has synced it by now."""
    closed = Path("/srv/broker")

    class ClosedParent(SimulatedDisk):
        def open_directory(self, path: Path) -> int:
            if path == closed:
                raise PermissionError(13, "Permission denied", str(path))
            return super().open_directory(path)

    disk = ClosedParent(closed / "data")
    assert open_log_dir(closed / "data", disk=disk).is_new
    with pytest.raises(UnusableLogDirError, match="Permission denied"):
        open_log_dir(closed / "other", disk=disk)


def test_a_stop_without_mark_is_unclean_on_the_same_boot(tmp_path):
    begun(tmp_path)
    log_dir = open_log_dir(tmp_path)
    assert (log_dir.is_new, log_dir.was_clean_shutdown, log_dir.same_boot) == (False, False, True)


def test_a_marked_stop_is_clean_until_the_next_start(tmp_path):
    log_dir = open_log_dir(tmp_path)
    log_dir.begin()
    log_dir.mark_clean()
    log_dir.unlock()
    log_dir = open_log_dir(tmp_path)
    assert log_dir.was_clean_shutdown
    log_dir.begin()
    log_dir.unlock()
    assert not open_log_dir(tmp_path).was_clean_shutdown


def test_a_restart_of_the_machine_is_noticed(tmp_path):
    begun(tmp_path)
    log_dir = open_log_dir(tmp_path, disk=RestartedMachine())
    assert not log_dir.same_boot
    log_dir.begin()
    log_dir.unlock()
    assert open_log_dir(tmp_path, disk=RestartedMachine()).same_boot


def test_a_restart_of_the_machine_may_have_cut_the_logs_until_the_broker_has_registered(tmp_path):
    known = open_log_dir(tmp_path)
    known.begin()
    known.keep_tail_lost_epoch(BrokerEpoch(7))
    known.unlock()
    for _ in range(2):
        # Killed before it could register: the second start finds the boot id that it wrote.
        log_dir = open_log_dir(tmp_path, disk=RestartedMachine())
        assert log_dir.tail_lost_epoch == TAIL_LOST_NOW
        log_dir.begin()
        log_dir.unlock()
    log_dir = open_log_dir(tmp_path, disk=RestartedMachine())
    log_dir.begin()
    log_dir.keep_tail_lost_epoch(BrokerEpoch(12))
    log_dir.mark_clean()
    log_dir.unlock()
    assert open_log_dir(tmp_path, disk=RestartedMachine()).tail_lost_epoch == 12


@pytest.mark.parametrize("crash_after", range(12))
def test_a_crash_while_a_start_is_noted_never_hides_what_may_be_lost(crash_after):
    path = Path("/data")
    disk = SimulatedDisk(path)
    first = open_log_dir(path, disk=disk)
    first.begin()
    first.keep_tail_lost_epoch(BrokerEpoch(7))
    disk.lose_power()
    log_dir = open_log_dir(path, disk=disk)
    disk.crash_after = disk.changes + crash_after
    with contextlib.suppress(CrashError):
        log_dir.begin()
    disk.kill_process()
    assert open_log_dir(path, disk=disk).tail_lost_epoch == TAIL_LOST_NOW


@pytest.mark.parametrize(("down", "known"), [(True, 19), (False, 22)])
def test_with_the_power_high_watermarks_go_down_to_what_was_flushed(down, known):
    """Above it there may be what a cut had removed before other records were committed there."""
    tp, path = TopicPartition("t", 0), Path("/data")
    disk = SimulatedDisk(path)
    log_dir = open_log_dir(path, disk=disk)
    log_dir.begin()
    log_dir.keep_tail_lost_epoch(BrokerEpoch(7))
    write_offsets(disk, path / RECOVERY_POINTS_FILE, {tp: 19})
    write_offsets(disk, path / HIGH_WATERMARKS_FILE, {tp: 22})
    if down:
        disk.lose_power()
    else:
        disk.kill_process()
    for _ in range(2):
        # The second start finds the file that the first one wrote, though it was killed at once.
        again = open_log_dir(path, disk=disk)
        again.begin()
        again.keep_tail_lost_epoch(BrokerEpoch(9))
        assert again.high_watermarks == {tp: known}
        disk.kill_process()


def test_a_stop_in_order_before_the_machine_goes_down_loses_nothing(tmp_path):
    log_dir = open_log_dir(tmp_path)
    log_dir.begin()
    log_dir.keep_tail_lost_epoch(BrokerEpoch(7))
    log_dir.mark_clean()
    log_dir.unlock()
    assert open_log_dir(tmp_path, disk=RestartedMachine()).tail_lost_epoch == 7


def test_a_log_dir_that_is_new_has_lost_everything_that_was_there(tmp_path):
    assert open_log_dir(tmp_path).tail_lost_epoch == TAIL_LOST_NOW


def test_a_killed_process_loses_nothing(tmp_path):
    log_dir = open_log_dir(tmp_path)
    log_dir.begin()
    (tmp_path / ".tail-lost").unlink()
    log_dir.unlock()
    assert open_log_dir(tmp_path).tail_lost_epoch == NO_TAIL_LOST


def test_a_log_dir_in_use_is_refused(tmp_path):
    code = (
        "import sys; from pathlib import Path;"
        "from storage_engine.tests.log.dirs.test_log_dir import open_log_dir;"
        "open_log_dir(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[4],
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(StorageError, match="in use by another process: stop that broker"):
            open_log_dir(tmp_path)
    finally:
        holder.communicate(b"")
    open_log_dir(tmp_path)


def test_another_brokers_log_dir_is_refused(tmp_path):
    begun(tmp_path)
    with pytest.raises(StorageError, match=r"belongs to broker 1, this is broker 2: correct"):
        open_log_dir(tmp_path, broker_id=2)
    open_log_dir(tmp_path)


def test_another_clusters_log_dir_is_refused(tmp_path):
    log_dir = open_log_dir(tmp_path)
    log_dir.begin()
    log_dir.set_cluster_id("c1")
    log_dir.unlock()
    assert "cluster.id=c1" in (tmp_path / "meta.properties").read_text()
    log_dir = open_log_dir(tmp_path)
    log_dir.set_cluster_id("c1")
    with pytest.raises(StorageError, match=r"belongs to cluster c1, ZooKeeper says c2"):
        log_dir.set_cluster_id("c2")


@pytest.mark.parametrize("version", ["2", "", "x", "0"])
def test_a_log_dir_of_another_format_is_refused(tmp_path, version):
    (tmp_path / "meta.properties").write_text(f"version={version}\nbroker.id=1\n")
    with pytest.raises(StorageError, match=f"format version '{version}', this release knows 1"):
        open_log_dir(tmp_path)


def test_a_path_that_is_no_log_dir_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="can't be written") as raised:
        open_log_dir(tmp_path / "file" / "data")
    assert "\n" not in str(raised.value)


def test_only_log_dirs_of_partitions_are_taken_for_such(tmp_path):
    for name in ("a-0", "b-c-12", "junk", "x-1.abc-delete", ".hidden-1"):
        (tmp_path / name).mkdir()
    (tmp_path / "file-3").write_text("")
    log_dir = open_log_dir(tmp_path)
    assert [str(found) for found in log_dir.partitions()] == ["a-0", "b-c-12"]
    assert log_dir.deleted_folders() == [tmp_path / "x-1.abc-delete"]
