"""The values of `cordoned.log.dirs`: some of a broker's log dirs, or * for all.

Source: KIP-1066.
"""

from collections.abc import Sequence
from pathlib import Path

from storage_engine.core.errors import ConfigError
from storage_engine.core.placement import ALL_LOG_DIRS, CORDONED_LOG_DIRS


def named_log_dirs(cordoned: Sequence[str], log_dirs: Sequence[Path]) -> frozenset[Path]:
    """Return those of the log dirs that a value names, as absolute paths."""
    own = {path.absolute() for path in log_dirs}
    if ALL_LOG_DIRS in cordoned:
        return frozenset(own)
    return frozenset(own.intersection(Path(each).absolute() for each in cordoned))


def check_cordoned(cordoned: Sequence[str], log_dirs: Sequence[Path]) -> None:
    """Raises ConfigError for a value that names something else."""
    problem = ""
    if ALL_LOG_DIRS in cordoned:
        problem = "* stands for all log dirs, and alone" if len(cordoned) > 1 else ""
    else:
        own = {path.absolute() for path in log_dirs}
        foreign = [each for each in cordoned if Path(each).absolute() not in own]
        if foreign:
            known = ", ".join(map(str, log_dirs))
            problem = f"{foreign[0]} is not in log.dirs: name some of {known}, or * for all"
    if problem:
        raise ConfigError(f"{CORDONED_LOG_DIRS}={','.join(cordoned)}: {problem}")
