"""Check that Spark on this machine can use the format headrace: versions, the Python of Spark's
workers, the format, the settings.

The command builds a session as a job of this environment would, with the settings that Spark finds
by itself (spark-defaults.conf) and the settings of --conf. It connects to no broker. 'to do' names
a change without which the format does not work: the exit status is then 1. 'advice' names a change
that makes it faster.

examples:
  headrace spark-check
  headrace spark-check --conf spark.sql.shuffle.partitions=2 --json
  headrace spark-check --remote sc://HOST:15002
"""

import argparse
from dataclasses import asdict

from storage_engine.tools.arguments import add_conf, add_json, add_timeout, pairs
from storage_engine.tools.local.signals import signals_interrupt
from storage_engine.tools.spark_check import workers
from storage_engine.tools.spark_check.findings import CheckVerdict, Finding
from storage_engine.tools.spark_check.java import check_java
from storage_engine.tools.spark_check.packages import check_packages
from storage_engine.tools.spark_check.session import SessionPlan, check_session
from storage_engine.tools.table import print_json, print_table, write_line

TIMEOUT_S = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace spark-check`."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--master", metavar="URL", help="master of the session (default: as Spark is configured)"
    )
    where.add_argument("--remote", metavar="URL", help="check this Spark Connect server instead")
    add_conf(parser, "a setting of the session")
    add_timeout(parser, TIMEOUT_S, "give up when the session needs more than this many seconds")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace spark-check`."""
    plan = SessionPlan(
        master=args.master,
        remote=args.remote,
        conf=pairs(args.conf),
        timeout_s=args.timeout,
    )
    with signals_interrupt():
        findings = check(plan)
    is_ready = all(each.verdict is not CheckVerdict.TO_DO for each in findings)
    if args.json:
        print_json({"ready": is_ready, "checks": [asdict(each) for each in findings]})
    else:
        print_findings(findings, is_ready=is_ready)
    return 0 if is_ready else 1


def check(plan: SessionPlan) -> list[Finding]:
    """All findings. What can't be tried, because something that it needs is missing, has none."""
    packages = check_packages(needs_spark=plan.remote is None)
    findings = list(packages.findings)
    if plan.remote is None:
        findings.append(check_java())
        if packages.spark_home is not None:
            findings.append(workers.check_workers(packages.spark_home))
    to_do = {each.check for each in findings if each.verdict is CheckVerdict.TO_DO}
    if to_do <= {workers.CHECK} and packages.pyspark is not None:
        findings += check_session(plan, pyspark=packages.pyspark, are_workers_right=not to_do)
    return findings


def print_findings(findings: list[Finding], *, is_ready: bool) -> None:
    """The table, and below it what to do, the necessary first."""
    print_table(
        ["check", "found", "result"], [[each.check, each.found, each.verdict] for each in findings]
    )
    for verdict in (CheckVerdict.TO_DO, CheckVerdict.ADVICE):
        for each in findings:
            if each.verdict is verdict:
                write_line(f"\n{verdict}: {each.check}\n  {each.remedy}")
    write_line(
        "\nready" if is_ready else "\nnot ready: make the changes marked 'to do', and check again"
    )
