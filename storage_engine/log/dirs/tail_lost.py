"""Two small files of a log dir, which say that its logs may have lost their ends (tails) with the
power of the machine, and since when. An incarnation is one registration of the broker in ZooKeeper,
named by its broker epoch.

    .tail-lost    the broker's first incarnation after the loss; until it has registered,
                  `-1 <boot id>`, the boot after the loss; `-1` alone for a new log dir, which may
                  have taken the place of one that has lost everything
    .boot-epoch   the boot id, and the first incarnation of this boot with these log dirs; then
                  their paths, one a line

A log dir that fails between the start and the registration still has -1 when it is used again,
perhaps long after. It was lost at the start of its boot, and `.boot-epoch` of another log dir has
the incarnation of that time. If it took the present incarnation, every log of the broker would
count as cut short.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from storage_engine.core.ids import NO_TAIL_LOST, TAIL_LOST_NOW, BrokerEpoch
from storage_engine.log.state.checkpoints import INT64_MAX, MOST_DIGITS


@dataclass(frozen=True, slots=True)
class TailLost:
    """The content of .tail-lost."""

    epoch: BrokerEpoch
    boot_id: str = ""

    @classmethod
    def parse(cls, text: str) -> "TailLost | None":
        """Return None for a damaged file."""
        if not text:
            return cls(NO_TAIL_LOST)
        epoch, _, boot_id = text.partition(" ")
        if epoch == str(TAIL_LOST_NOW):
            return cls(TAIL_LOST_NOW, boot_id)
        number = _epoch(text)
        return None if number is None else cls(number)

    def __str__(self) -> str:
        return f"{self.epoch} {self.boot_id}".rstrip()


@dataclass(frozen=True, slots=True)
class BootEpoch:
    """The content of .boot-epoch."""

    epoch: BrokerEpoch
    boot_id: str
    log_dirs: tuple[Path, ...]
    """Sorted."""

    @classmethod
    def parse(cls, content: bytes) -> "BootEpoch | None":
        """Return None for a damaged file."""
        first, *names = content.removesuffix(b"\n").split(b"\n")
        boot_id, _, text = first.decode("utf-8", "replace").rpartition(" ")
        epoch = _epoch(text)
        if epoch is None:
            return None
        return cls(epoch, boot_id, tuple(Path(os.fsdecode(name)) for name in names))

    def __bytes__(self) -> bytes:
        names = (os.fsencode(path) for path in self.log_dirs)
        return b"\n".join((f"{self.boot_id} {self.epoch}".encode(), *names)) + b"\n"


def _epoch(text: str) -> BrokerEpoch | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    return BrokerEpoch(int(text)) if is_number and int(text) <= INT64_MAX else None
