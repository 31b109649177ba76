"""kcat, Debian's package: a librdkafka some years older than Confluent's. It has no way to be given
a token that is signed."""

import subprocess

from integration_tests.security.clients import cells
from integration_tests.security.clients.clients_cluster import TOPIC, Way
from integration_tests.security.clients.librdkafka_client import settings_of

TIMEOUT_S = 60

SAYS = {
    cells.WRONG_SECRET: "authentication failed",
    cells.UNKNOWN_BROKER: "certificate verify failed",
    cells.OTHER_HOST: "certificate verify failed",
    cells.EXPIRED_BROKER: "certificate verify failed",
    cells.NO_CERTIFICATE: "alert (certificate required|handshake failure)",
    cells.UNKNOWN_CLIENT: "alert unknown ca",
    cells.EXPIRED_CLIENT: "alert certificate expired",
}


def _command(way: Way, *arguments: str) -> list[str]:
    settings = {key: text for key, text in settings_of(way).items() if key != "log_level"}
    return [
        "kcat",
        *(part for key, text in settings.items() for part in ("-X", f"{key}={text}")),
        *arguments,
    ]


def _done(command: list[str], stdin: str = "") -> str:
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def writes_and_reads(way: Way, value: bytes) -> bytes | None:
    """What is read where it has written: the last record of the topic."""
    _done(_command(way, "-P", "-t", TOPIC, "-p", "0"), stdin=value.decode())
    last = ("-C", "-t", TOPIC, "-p", "0", "-o", "-1", "-c", "1", "-q")
    return _done(_command(way, *last)).strip().encode()


def is_told(way: Way) -> str:
    """Why it does not get in: the first failure that it tells of, for it tries on and on."""
    with subprocess.Popen(
        _command(way, "-L", "-m", str(TIMEOUT_S)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        told = next((line for line in process.stderr if "|FAIL|" in line), "it tells nothing")
        process.kill()
    return told
