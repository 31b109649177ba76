"""Tries a session: whether it starts, whether it finds the format, whether a task runs."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from storage_engine.tools.spark_check.findings import Finding
from storage_engine.tools.spark_check.secrets import REDACTION, holds_secret, judge_secrets
from storage_engine.tools.spark_check.session_probe import Found, Given
from storage_engine.tools.spark_check.settings import SETTINGS, judge_settings

PROBE = Path(__file__).with_name("session_probe.py")
SHOWN_CHARACTERS = 300
FOLLOWS = "nothing by itself: it follows from the Python of the workers"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """The session that is tried."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float


def check_session(plan: SessionPlan, *, pyspark: str, are_workers_right: bool) -> list[Finding]:
    """Try a session. `are_workers_right`: the workers' Python has what the format needs; without
    that, it is the reason why other checks fail."""
    found, said = _try(plan)
    if "version" not in found:
        text = "not started" if said is None else "failed"
        why = f"no answer within {plan.timeout_s:g} s (--timeout)" if said is None else said
        return [Finding.to_do("session", text, why)]
    return [
        _session_finding(found, pyspark=pyspark),
        _format_finding(found, said, are_workers_right=are_workers_right),
        _task_finding(found, said, are_workers_right=are_workers_right),
        *_settings_findings(found),
    ]


def _try(plan: SessionPlan) -> tuple[Found, str | None]:
    """Return the findings of the probe, and its last line; None where it had to be killed."""
    given: Given = {
        "master": plan.master,
        "remote": plan.remote,
        "conf": dict(plan.conf),
        "names": [*(setting.name for setting in SETTINGS), *REDACTION],
    }
    with tempfile.TemporaryDirectory(prefix="headrace-spark-check-") as folder:
        result = Path(folder) / "result.json"
        child = subprocess.Popen(
            [sys.executable, "-P", PROBE, result, json.dumps(given)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = child.communicate(timeout=plan.timeout_s)
            said: str | None = last_words(output)
        except subprocess.TimeoutExpired:
            said = None
        finally:
            _end(child)
        found: Found = json.loads(result.read_text()) if result.exists() else {}
    return found, said


def _end(child: "subprocess.Popen[str]") -> None:
    """Kill the process group of the child, to which its JVM belongs."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def last_words(output: str) -> str:
    """Return the most useful line of an output: the last one with an error, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [
        line
        for line in lines
        if not line.startswith(("at ", "File ", "... "))
        and any(word in line for word in ("Error", "Exception", "error:", "[DATA_SOURCE"))
    ]
    line = (telling or lines or ["it said nothing"])[-1]
    return line if len(line) <= SHOWN_CHARACTERS else line[:SHOWN_CHARACTERS] + "…"


def _session_finding(found: Found, *, pyspark: str) -> Finding:
    version = found["version"]
    where = f", {found['master']}" if "master" in found else ""
    text = f"Spark {version}{where}, started in {found['seconds']:.1f} s"
    if _numbers(version) != _numbers(pyspark):
        remedy = f"install the same version on both sides; PySpark is {pyspark}"
        if home := os.environ.get("SPARK_HOME"):
            remedy = f"unset SPARK_HOME, which is {home}, or {remedy}"
        return Finding.to_do("session", text, remedy)
    return Finding(check="session", found=text)


def _format_finding(found: Found, said: str | None, *, are_workers_right: bool) -> Finding:
    check = 'format("headrace")'
    error = found.get("format", said or "no answer")
    if error is None:
        return Finding(check=check, found="found")
    if "DATA_SOURCE_NOT_FOUND" in error:
        remedy = "call connector.register(spark) in the job, after the session is built"
        return Finding.to_do(check, "not found", remedy if are_workers_right else FOLLOWS)
    return Finding.to_do(check, "fails", _why(error, are_workers_right=are_workers_right))


def _task_finding(found: Found, said: str | None, *, are_workers_right: bool) -> Finding:
    error = found.get("task", said or "no answer")
    if error is None:
        return Finding(check="task", found=f"runs in {', '.join(found['executables'])}")
    return Finding.to_do("task", "fails", _why(error, are_workers_right=are_workers_right))


def _why(error: str, *, are_workers_right: bool) -> str:
    words = last_words(error)
    return words if are_workers_right else f"{FOLLOWS} ({words})"


def _settings_findings(found: Found) -> list[Finding]:
    if "settings" not in found:
        return []
    settings = found["settings"]
    inline = [name for name in found.get("given", ()) if holds_secret(name)]
    version, cores = _numbers(found["version"]), found.get("cores")
    return [
        *judge_settings(settings, version=version, cores=cores),
        judge_secrets(inline, {name: settings.get(name) for name in REDACTION}),
    ]


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
