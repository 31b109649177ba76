"""One of a broker's log dirs. Only one process uses it, a broker with the recorded id and of
a release that supports its format.

    .lock               locked exclusively while a broker runs
    meta.properties     version=1, broker.id, cluster.id
    .boot-id            the kernel's boot id when the broker last started on this log dir
    .clean-shutdown     present only after a stop in order; holds the boot id too
    .tail-lost          once the machine went down under a running broker: see `tail_lost`
    .boot-epoch         the same
    <topic>-<partition>/

The boot id distinguishes a killed process (the page cache lives on, nothing is lost) from a machine
that went down. Source: R-CTL4, R-LOG8.
"""

import logging
import uuid
from pathlib import Path

from storage_engine.core.errors import StorageError
from storage_engine.core.ids import TAIL_LOST_NOW, BrokerEpoch, TopicPartition
from storage_engine.core.system_errors import Reach, reach_of_file_error
from storage_engine.log.dirs.tail_lost import BootEpoch, TailLost
from storage_engine.log.files.disk import Disk, FreeSpace, replace_file, sync_names
from storage_engine.log.state.checkpoints import (
    CLEANER_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_STARTS_FILE,
    MOST_DIGITS,
    RECOVERY_POINTS_FILE,
    SCRUB_TIMES_FILE,
    SavedOffsets,
    read_offsets,
    write_offsets,
)

FORMAT_VERSION = 1
LOCK_FILE = ".lock"
META_FILE = "meta.properties"
BOOT_ID_FILE = ".boot-id"
CLEAN_SHUTDOWN_FILE = ".clean-shutdown"
TAIL_LOST_FILE = ".tail-lost"
BOOT_EPOCH_FILE = ".boot-epoch"
DELETED_FOLDER_SUFFIX = "-delete"
STRAY_FOLDER_SUFFIX = "-stray"
"""The suffix for the folder of a partition whose topic was deleted and created again; it is kept
until a person removes it.
"""

FUTURE_FOLDER_SUFFIX = "-future"
MOVED_FOLDER_SUFFIX = "-moved"
"""The suffix for folders of copies in a log dir that their partitions move to: see `log_moves`."""

FILE_NAME_MAX_BYTES = 255

logger = logging.getLogger(__name__)


class UnusableLogDirError(StorageError):
    """The operating system refuses the log dir; others of the broker may be usable."""


def _kind_of(error: OSError) -> type[StorageError]:
    """Return the class of error that a start fails with. When descriptors or memory are short, no
    log dir is left out: the whole start fails."""
    is_short = reach_of_file_error(error) is Reach.SHORTAGE
    return StorageError if is_short else UnusableLogDirError


class BrokerLogDir:
    """A locked log dir. Its files about the last run are read once, when it is opened."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        *,
        broker_id: int,
        reserve_bytes: int = 0,
    ) -> None:
        """StorageError when the log dir must not be used; UnusableLogDirError when it can't be."""
        self._disk = disk
        self.path = path
        self._lock: int | None = None
        self._names: int | None = None
        self.room = FreeSpace(disk, path, reserve_bytes=reserve_bytes)
        self.failed = False
        """True when its disk has failed: nothing in it is touched before the next start."""
        try:
            self._make_folder()
            self._lock = disk.lock(path / LOCK_FILE)
            self._names = disk.open_directory(path)
        except OSError as error:
            self.unlock()
            raise _kind_of(error)(
                f"the log dir {path} can't be written ({error.strerror or error}):"
                " make it writable for this user or set log.dirs to another path"
            ) from error
        if self._lock is None:
            self.unlock()
            raise StorageError(
                f"the log dir {path} is in use by another process: stop that broker first,"
                " or set log.dirs to another path"
            )
        try:
            self._take_over(broker_id)
        except OSError as error:
            self.unlock()
            raise _kind_of(error)(
                f"the log dir {path} can't be used ({error.strerror or error}):"
                " check its files, the disk and the permissions"
            ) from error
        except StorageError:
            self.unlock()
            raise

    def _make_folder(self) -> None:
        """Makes the folder, with its name and those of its parents on the medium before it counts
        as a broker's: else a loss of power could take it with all that was flushed in it."""
        if self._disk.exists(self.path / META_FILE):
            return
        made = {path for path in (self.path, *self.path.parents) if not self._disk.exists(path)}
        self._disk.make_directory(self.path)
        for path in reversed((self.path, *self.path.parents[:-1])):
            try:
                # Whoever made the others, perhaps an earlier start, has not synced them.
                sync_names(self._disk, path.parent)
            except OSError:
                # This user may not be allowed to open a folder that others have made.
                if path in made:
                    raise

    def _take_over(self, broker_id: int) -> None:
        self.is_new = not self._disk.exists(self.path / META_FILE)
        """True when the log dir held no broker's data before."""
        self._meta = self._checked_meta(broker_id)
        boot_id, known = self._disk.boot_id(), self._read_text(BOOT_ID_FILE)
        self.same_boot = known == boot_id
        """True when the machine has not been restarted since a broker last started on this log
        dir."""
        self.is_cached = known in (boot_id, "")
        """See `LogStart.is_cached`."""
        self.was_clean_shutdown = self._disk.exists(self.path / CLEAN_SHUTDOWN_FILE)
        self._tail_lost = self._read_tail_lost(known)
        self._has_new_tail_lost = self._tail_lost.epoch == TAIL_LOST_NOW
        self._boot_epoch = BootEpoch.parse(self._read(BOOT_EPOCH_FILE))
        saved_points = self._saved(RECOVERY_POINTS_FILE)
        self.recovery_points = saved_points.offsets
        """The recovery points on the medium."""
        self.gaps_prove_crash = not saved_points.is_damaged and self._disk.exists(
            self.path / RECOVERY_POINTS_FILE
        )
        """True when a gap between two segments above a log's recovery point proves a crash."""
        self.log_starts = self._saved(LOG_STARTS_FILE).offsets
        cleaned = self._saved(CLEANER_OFFSETS_FILE)
        self.cleaner_offsets = cleaned.offsets
        self.least_cleaner_offset = 1 if cleaned.is_damaged else 0
        """The value for logs that the file does not name: where it is damaged, each of them may
        have been compacted, so that offsets may be missing."""
        self.scrub_times = self._saved(SCRUB_TIMES_FILE).offsets
        """The times of the last scrubs of older segments, in wall-clock milliseconds."""
        self.high_watermarks = self._saved(HIGH_WATERMARKS_FILE).offsets

    def begin(self) -> None:
        """Counts any stop without `mark_clean` as unclean from now on; on the medium when this
        returns.
        """
        if self.is_new or self._meta != self._read_meta():
            self._write_meta()
        if self._has_new_tail_lost:
            # This comes before the boot id: once that is written, only this file shows the loss.
            self._write_tail_lost()
            self._lower_high_watermarks()
        self._disk.remove(self.path / CLEAN_SHUTDOWN_FILE)
        replace_file(
            self._disk, self.path / BOOT_ID_FILE, self._disk.boot_id().encode() + b"\n", sync=True
        )

    def mark_clean(self) -> None:
        """Marks the stop as clean; all logs are closed and flushed."""
        content = f"version={FORMAT_VERSION}\nboot.id={self._disk.boot_id()}\n"
        replace_file(self._disk, self.path / CLEAN_SHUTDOWN_FILE, content.encode(), sync=True)

    @property
    def tail_lost_epoch(self) -> BrokerEpoch:
        """The broker's first incarnation since the logs here may have lost unflushed records;
        TAIL_LOST_NOW when that is the next one."""
        return self._tail_lost.epoch

    @property
    def has_missed_registrations(self) -> bool:
        """True when the tails were lost before this boot, and an earlier start of the same boot has
        noted that: the broker may have registered since, without this log dir."""
        return self._tail_lost.boot_id == self._disk.boot_id() and self.same_boot

    def take_tail_lost_epoch(self, epoch: BrokerEpoch) -> None:
        """As `keep_tail_lost_epoch`, but `begin` writes it."""
        self._tail_lost = TailLost(epoch)

    def keep_tail_lost_epoch(self, epoch: BrokerEpoch) -> None:
        """Keeps the epoch of the first registration since the logs may have been cut."""
        self._tail_lost = TailLost(epoch)
        self._write_tail_lost()

    def boot_epoch(self, log_dirs: tuple[Path, ...]) -> BrokerEpoch | None:
        """Return the first incarnation of this boot with these log dirs, as far as known here."""
        known = self._boot_epoch
        if known is None or (known.boot_id, known.log_dirs) != (self._disk.boot_id(), log_dirs):
            return None
        return known.epoch

    def keep_boot_epoch(self, epoch: BrokerEpoch, log_dirs: tuple[Path, ...]) -> None:
        self._boot_epoch = BootEpoch(epoch, self._disk.boot_id(), log_dirs)
        content = bytes(self._boot_epoch)
        replace_file(self._disk, self.path / BOOT_EPOCH_FILE, content, sync=True)

    def set_cluster_id(self, cluster_id: str) -> None:
        """Keeps the cluster's id, or checks it against the recorded one."""
        known = self._meta.get("cluster.id")
        if known is None:
            self._meta["cluster.id"] = cluster_id
            self._write_meta()
        elif known != cluster_id:
            raise StorageError(
                f"the log dir {self.path} belongs to cluster {known}, ZooKeeper says"
                f" {cluster_id}: correct zookeeper.connect or log.dirs"
            )

    def partitions(self) -> list[TopicPartition]:
        found = []
        for name in sorted(self._disk.list_names(self.path)):
            if name.startswith(".") or not self._disk.is_directory(self.path / name):
                continue
            if name.endswith((DELETED_FOLDER_SUFFIX, FUTURE_FOLDER_SUFFIX, MOVED_FOLDER_SUFFIX)):
                continue
            try:
                found.append(TopicPartition.parse(name))
            except ValueError:
                logger.warning("folder ignored, not of a partition folder=%s", self.path / name)
        return found

    def named(self, suffix: str) -> list[tuple[TopicPartition, Path]]:
        """Return the folders `<topic>-<partition>.<uuid><suffix>`."""
        found = []
        for name in sorted(self._disk.list_names(self.path)):
            if not name.endswith(suffix):
                continue
            try:
                found.append((TopicPartition.parse(name.rpartition(".")[0]), self.path / name))
            except ValueError:
                logger.warning("folder ignored, not of a partition folder=%s", self.path / name)
        return found

    def deleted_folders(self) -> list[Path]:
        """Return folders that an earlier deletion did not remove."""
        return [
            self.path / name
            for name in self._disk.list_names(self.path)
            if name.endswith(DELETED_FOLDER_SUFFIX)
        ]

    def rename_out(self, topic_partition: TopicPartition, suffix: str) -> Path:
        """Gives a partition's folder a name that is no partition's; returns the new path."""
        suffix = f".{uuid.uuid4().hex}{suffix}"
        name = str(topic_partition)[: FILE_NAME_MAX_BYTES - len(suffix)] + suffix
        self._disk.rename(self.path / str(topic_partition), self.path / name)
        return self.path / name

    def sync_names(self) -> None:
        """Brings the names here to the medium. Takes no descriptor: a shortage of them between two
        names that belong together would leave no log at all."""
        assert self._names is not None, "the log dir is locked"
        self._disk.sync_names(self._names)

    def unlock(self) -> None:
        for descriptor in (self._lock, self._names):
            if descriptor is not None:
                self._disk.close(descriptor)
        self._lock = self._names = None

    def _checked_meta(self, broker_id: int) -> dict[str, str]:
        meta = self._read_meta()
        if not meta:
            meta = {"version": str(FORMAT_VERSION), "broker.id": str(broker_id)}
        version = meta.get("version", "")
        is_number = version.isascii() and version.isdigit() and len(version) <= MOST_DIGITS
        if not is_number or not 1 <= int(version) <= FORMAT_VERSION:
            raise StorageError(
                f"the log dir {self.path} has format version '{version}', this release knows"
                f" {FORMAT_VERSION}: use the release that wrote it, or another log dir"
            )
        if meta.get("broker.id") != str(broker_id):
            raise StorageError(
                f"the log dir {self.path} belongs to broker {meta.get('broker.id')}, this is"
                f" broker {broker_id}: correct broker.id or log.dirs"
            )
        return meta

    def _read_meta(self) -> dict[str, str]:
        meta = {}
        for line in self._read_text(META_FILE).splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                meta[key.strip()] = value.strip()
        return meta

    def _write_meta(self) -> None:
        text = "".join(f"{key}={value}\n" for key, value in self._meta.items())
        replace_file(self._disk, self.path / META_FILE, text.encode(), sync=True)

    def _read_tail_lost(self, known_boot_id: str) -> TailLost:
        if not self.was_clean_shutdown and not self.same_boot:
            # A new log dir may be a disk that was replaced, whose logs have lost everything.
            return TailLost(TAIL_LOST_NOW, self._disk.boot_id() if known_boot_id else "")
        found = TailLost.parse(self._read_text(TAIL_LOST_FILE))
        if found is None:
            logger.warning(
                "file damaged, assuming that the end of every log was lost file=%s",
                self.path / TAIL_LOST_FILE,
            )
        return found or TailLost(TAIL_LOST_NOW)

    def _write_tail_lost(self) -> None:
        content = f"{self._tail_lost}\n".encode()
        replace_file(self._disk, self.path / TAIL_LOST_FILE, content, sync=True)

    def _saved(self, name: str) -> SavedOffsets:
        return read_offsets(self._disk, self.path / name)

    def _lower_high_watermarks(self) -> None:
        """Lowers high watermarks to the recovery points: above these, records may be back that a
        truncation had removed before the machine went down, and they are not the ones committed
        later."""
        points = self.recovery_points
        flushed = {tp: min(known, points.get(tp, 0)) for tp, known in self.high_watermarks.items()}
        if flushed != self.high_watermarks:
            self.high_watermarks = flushed
            write_offsets(self._disk, self.path / HIGH_WATERMARKS_FILE, flushed)

    def _read_text(self, name: str) -> str:
        return self._read(name).decode("utf-8", "replace").strip()

    def _read(self, name: str) -> bytes:
        path = self.path / name
        return self._disk.read_file(path) if self._disk.exists(path) else b""
