"""Warnings that a user should see once. A process does not repeat a line, however often Spark makes
a reader or a writer anew.
"""

import logging
from collections.abc import Iterable

logger = logging.getLogger(__name__)

_logged: set[str] = set()


def warn_once(lines: Iterable[str]) -> None:
    """Logs each line that this process has not logged yet. They are warnings, because Spark's
    Python workers show nothing below."""
    for line in lines:
        if line not in _logged:
            _logged.add(line)
            logger.warning("%s", line)
