"""The ways into a cluster, and what may be wrong with each: a cell of the matrix is one of both."""

from dataclasses import dataclass

from storage_engine.tests.sampling import ALL_FAULTS

SCRAM_256, SCRAM_512, PLAIN, TOKEN = "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"
MECHANISMS = (SCRAM_256, SCRAM_512, PLAIN, TOKEN)

WRONG_SECRET = "wrong-secret"
UNKNOWN_BROKER = "unknown-authority-of-the-broker"
OTHER_HOST = "broker-of-another-name"
EXPIRED_BROKER = "expired-broker"
NO_CERTIFICATE = "no-certificate"
UNKNOWN_CLIENT = "unknown-authority-of-the-client"
EXPIRED_CLIENT = "expired-client"

OF_BROKERS = (UNKNOWN_BROKER, OTHER_HOST, EXPIRED_BROKER)
"""The client refuses."""
OF_CLIENTS = (NO_CERTIFICATE, UNKNOWN_CLIENT, EXPIRED_CLIENT)
"""The broker refuses."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A client that comes like this."""

    mechanism: str | None
    """None: nobody logs in."""
    asks: bool
    """Whether the broker wants a certificate of the client (mTLS)."""
    problem: str | None = None

    def __str__(self) -> str:
        way = f"{self.mechanism or 'no log-in'} over {'mTLS' if self.asks else 'TLS'}"
        return f"{way}: {self.problem or 'right'}"

    @property
    def listener(self) -> str:
        """Where it comes."""
        name = "TLS" if self.mechanism is None else "SASL"
        if self.asks:
            name += "_ASKS"
        if self.problem in (OTHER_HOST, EXPIRED_BROKER):
            name += "_OTHER" if self.problem == OTHER_HOST else "_OLD"
        return name


def _every_cell() -> list[Cell]:
    cells = []
    for asks in (False, True):
        for mechanism in (*MECHANISMS, None):
            problems: list[str | None] = [None, *OF_BROKERS]
            problems += [WRONG_SECRET] if mechanism else []
            problems += OF_CLIENTS if asks else ()
            cells += [Cell(mechanism, asks, problem) for problem in problems]
    return cells


SAMPLE = [
    Cell(SCRAM_256, asks=True),
    Cell(SCRAM_512, asks=False),
    Cell(PLAIN, asks=False),
    Cell(TOKEN, asks=True),
    Cell(None, asks=True),
    Cell(SCRAM_512, asks=True, problem=WRONG_SECRET),
    Cell(TOKEN, asks=False, problem=WRONG_SECRET),
    Cell(SCRAM_256, asks=False, problem=UNKNOWN_BROKER),
    Cell(PLAIN, asks=True, problem=OTHER_HOST),
    Cell(SCRAM_512, asks=False, problem=EXPIRED_BROKER),
    Cell(SCRAM_512, asks=True, problem=NO_CERTIFICATE),
    Cell(None, asks=True, problem=UNKNOWN_CLIENT),
    Cell(PLAIN, asks=True, problem=EXPIRED_CLIENT),
]
"""Each mechanism and each problem once, without HEADRACE_FAULTS=full."""

CELLS = _every_cell() if ALL_FAULTS else SAMPLE
LISTENERS = sorted({cell.listener for cell in _every_cell()})
