"""The Spark format at brokers with TLS and log-ins; with a file of settings no secret is anywhere
that Spark or we write. By default the job runs in the session of the tests; in full in a Spark of
its own, with all that its Python workers say, too."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from integration_tests.security import spark_job
from integration_tests.security.secured_cluster import SECRET, properties_file, secured_cluster
from storage_engine.client import Admin, NewTopic
from storage_engine.tests.sampling import ALL_FAULTS, in_full

ROOT = Path(__file__).parents[2]
JOB_TIMEOUT_S = 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with secured_cluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


@pytest.fixture
def run_job(cluster, request):
    """Runs a job on topics of its own; what is said."""
    run = run_program if ALL_FAULTS else partial(run_in_session, request.getfixturevalue)

    def run_on_topics(folder, prefix, options, wrong):
        with Admin(cluster.bob("BOTH")) as admin:
            admin.create_topics(
                NewTopic(name=f"{prefix}-{end}", partitions=2, replication_factor=1)
                for end in ("in", "out")
            )
        return run(folder, prefix, options, wrong)

    return run_on_topics


def run_program(folder, prefix, options, wrong):
    given = {"options": options, "wrong": wrong, "folder": str(folder), "prefix": prefix}
    done = subprocess.run(
        [sys.executable, "-P", spark_job.__file__, json.dumps(given)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=JOB_TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    return said


def run_in_session(fixture, folder, prefix, options, wrong):
    session, printed, ours = fixture("spark"), fixture("capsys"), fixture("caplog")
    with spark_job.overheard(session, folder):
        spark_job.work(session, folder, prefix, options, wrong)
    logged = (folder / "log").read_text()
    assert "INFO org.apache.spark" in logged
    return "".join(printed.readouterr()) + ours.text + logged


def holding(folder, *secrets):
    """The files with one of the secrets in them."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found += [path.name for secret in secrets if secret.encode() in data]
    return found


def test_with_a_file_of_settings_no_secret_is_written_or_said(cluster, run_job, tmp_path):
    config = cluster.bob("BOTH")
    servers = {"kafka.bootstrap.servers": config.pop("bootstrap.servers")}
    (tmp_path / "settings").mkdir()
    right = properties_file(tmp_path / "settings" / "right.properties", config)
    wrong = properties_file(
        tmp_path / "settings" / "wrong.properties", {**config, "sasl.password": "hidden-pw"}
    )
    (tmp_path / "job").mkdir()
    said = run_job(
        tmp_path / "job",
        "filed",
        {**servers, "client.config.file": str(right)},
        {**servers, "client.config.file": str(wrong)},
    )
    assert f"read {spark_job.ROWS}" in said
    assert "[AUTHENTICATION_FAILED]" in said
    assert "the log-in as 'bob' by SCRAM-SHA-512 failed" in said
    assert SECRET not in said
    assert "hidden-pw" not in said
    assert (tmp_path / "job" / "checkpoint" / "offsets").is_dir()
    # Whoever listens was told of the jobs, so that a secret would be seen.
    assert holding(tmp_path / "job" / "events", "SparkListenerJobEnd")
    assert holding(tmp_path / "job", SECRET, "hidden-pw") == []


@in_full
def test_options_as_they_are_written_for_sparks_own_connector(cluster, run_job, tmp_path):
    line = (
        "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="bob" password="{SECRET}";'
    )
    options = {
        "kafka.bootstrap.servers": cluster.config("BOTH")["bootstrap.servers"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": line,
        "kafka.ssl.truststore.location": cluster.ca_file,
        "kafka.ssl.truststore.type": "PEM",
    }
    stranger = {**options, "kafka.ssl.truststore.location": cluster.stranger_file}
    said = run_job(tmp_path, "inline", options, stranger)
    assert f"read {spark_job.ROWS}" in said
    assert "certificate is not accepted" in said
    assert "'sasl.jaas.config' is a secret, and Spark stores and shows options" in said
    # Offsets, commits and state are ours to write, and so are our messages.
    assert holding(tmp_path / "checkpoint", SECRET) == []
    assert not [line for line in said.splitlines() if "headrace" in line and SECRET in line]
