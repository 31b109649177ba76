"""Warns of secrets among the settings of a session, which Spark stores and shows.

Spark hides what it shows of settings and options by two regular expressions, and their defaults
match few of the names that clients of Kafka have. Source: the table of settings of Spark.
"""

import re
from collections.abc import Mapping, Sequence

from storage_engine.client.security.security_rows import SECRET_KEYS
from storage_engine.tools.spark_check.findings import CheckVerdict, Finding

CHECK = "secrets"

REDACTION = {
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|access[.]?key",
    "spark.sql.redaction.options.regex": "(?i)url",
}
"""The settings that hide secrets, with Spark's defaults."""

BETTER = "(?i)secret|password|token|jaas|[.]key|url"


def judge_secrets(inline: Sequence[str], redaction: Mapping[str, str | None]) -> Finding:
    """`inline`: the names of settings of the session that hold a secret. `redaction`: what the
    session says of REDACTION, None where it says nothing."""
    if not inline:
        return Finding(check=CHECK, found="none among the settings of the session")
    shown = [
        name
        for name, default in REDACTION.items()
        if not _hides(redaction.get(name) or default, inline)
    ]
    remedy = (
        "put them into a file that the driver and each worker has, and name it with the option "
        "client.config.file: Spark stores settings and options, and shows them in its UI and logs"
    )
    if shown:
        remedy += f"; until then set {' and '.join(shown)} to {BETTER}"
    return Finding(check=CHECK, found=", ".join(inline), verdict=CheckVerdict.ADVICE, remedy=remedy)


def holds_secret(name: str) -> bool:
    """Whether a setting of Spark is one of a client's secrets under some prefix."""
    lowered = name.lower()
    return any(lowered == key or lowered.endswith(f".{key}") for key in SECRET_KEYS)


def _hides(regex: str, names: Sequence[str]) -> bool:
    try:
        return all(re.search(regex, name) for name in names)
    except re.error:
        # Java's expressions are not all Python's.
        return True
