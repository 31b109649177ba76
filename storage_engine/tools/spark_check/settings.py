"""Finds the settings of a session that cost speed. Source: the table in docs/spark.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from storage_engine.tools.spark_check.findings import CheckVerdict, Finding

Judge = Callable[[str, int | None], str | None]
"""Takes the value and the number of tasks that run at a time, where that is known. Returns what to
do, None where the value is good."""

TOO_MANY_SHUFFLE_PARTITIONS = 4
"""The limit, as a multiple of the number of tasks that run at a time."""
USUAL_CORES = 50
"""Where the number is not known, fewer shuffle partitions than four times this pass."""
SPARKS_ARROW_BATCH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSetting:
    """A setting of Spark that matters to the format."""

    name: str
    default: str
    """Spark's; what holds where the session does not say."""
    judge: Judge
    since: tuple[int, int] = (4, 0)
    """The version of Spark that has it."""


def _should_be(value: str, why: str) -> Judge:
    def judge(text: str, cores: int | None) -> str | None:
        return None if text.strip().lower() == value else f"set it to {value}: {why}"

    return judge


def _judge_shuffle(text: str, cores: int | None) -> str | None:
    most = TOO_MANY_SHUFFLE_PARTITIONS * (cores or USUAL_CORES)
    if not text.isdigit() or int(text) < max(most, 2):
        return None
    number = "the number of cores" if cores is None else f"{cores}, the number of cores"
    return (
        f"set it to {number}, for streams with a shuffle: each partition is a task, and with the "
        "exactly-once sink a transaction; a checkpoint keeps the number that it began with"
    )


def _judge_arrow(text: str, cores: int | None) -> str | None:
    try:
        is_small = 0 < int(text) < SPARKS_ARROW_BATCH
    except ValueError:
        return None
    if not is_small:
        return None
    return f"leave it at {SPARKS_ARROW_BATCH}: smaller record batches cost time in every task"


SETTINGS = (
    SparkSetting(
        name="spark.python.unix.domain.socket.enabled",
        default="false",
        judge=_should_be(
            "true",
            "without it TCP stalls in each task, which adds tens of milliseconds to a micro-batch",
        ),
        since=(4, 1),
    ),
    SparkSetting(name="spark.sql.shuffle.partitions", default="200", judge=_judge_shuffle),
    SparkSetting(
        name="spark.sql.python.filterPushdown.enabled",
        default="false",
        judge=_should_be(
            "false",
            "the format headrace uses no filters of Spark, which then plans each filtered read "
            "again; the options columns and where make it read less",
        ),
        since=(4, 1),
    ),
    SparkSetting(
        name="spark.python.worker.reuse",
        default="true",
        judge=_should_be("true", "connections and metadata then outlive a task"),
    ),
    SparkSetting(
        name="spark.python.use.daemon",
        default="true",
        judge=_should_be("true", "without it each task starts a new Python, which takes a second"),
    ),
    SparkSetting(
        name="spark.sql.execution.arrow.maxRecordsPerBatch",
        default=str(SPARKS_ARROW_BATCH),
        judge=_judge_arrow,
    ),
)


def judge_settings(
    given: Mapping[str, str | None], *, version: tuple[int, int], cores: int | None
) -> list[Finding]:
    """A finding for each setting that this version of Spark has. `given`: what the session says,
    None where it says nothing."""
    findings = []
    for setting in SETTINGS:
        if version < setting.since:
            continue
        value = given.get(setting.name)
        value = setting.default if value is None else value
        advice = setting.judge(value, cores)
        verdict = CheckVerdict.OK if advice is None else CheckVerdict.ADVICE
        findings.append(
            Finding(check=setting.name, found=value, verdict=verdict, remedy=advice or "")
        )
    return findings
