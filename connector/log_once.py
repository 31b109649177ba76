"""Lines for the log that a user should see once. Its one rule: the same line is not repeated by a
process, however often Spark makes a reader or a writer anew.
"""

import logging
from collections.abc import Iterable

logger = logging.getLogger(__name__)

_logged: set[str] = set()


def warn_once(lines: Iterable[str]) -> None:
    """As warnings: Spark's Python workers show nothing below."""
    for line in lines:
        if line not in _logged:
            _logged.add(line)
            logger.warning("%s", line)
