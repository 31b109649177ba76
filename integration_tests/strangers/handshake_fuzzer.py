"""Conversations of TLS and SASL that go wrong somewhere: a client's bytes, changed on their way.

A TLS client's records go through `Mutator`, which at some point flips bits, cuts, repeats, swaps or
makes up what is sent, in the handshake or in the middle of a session. At the listeners without TLS
the same is done to the frames of a log-in.
"""

import contextlib
import itertools
import random
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from storage_engine.protocol.framing import encode_request_frame
from storage_engine.protocol.messages import sasl_authenticate, sasl_handshake
from storage_engine.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from storage_engine.protocol.messages.sasl_handshake import SaslHandshakeRequest

RECORD_HEAD = 5
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
WAIT_S = 0.05
"""For an answer; who was sent half a message gives none."""
TURNS = 12
_LENGTHS = (0, 1, 2**14, 2**14 + 256, 2**14 + 257, 2**16 - 1)
_CURVES = ("prime256v1", "secp384r1", "secp521r1")
"""The server may ask for a second first message of those who guess wrongly."""


def handshake(mechanism: str) -> bytes:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return b"".join(map(bytes, encode_request_frame(sasl_handshake.API, 1, 1, "x", request)))


def token(data: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=data)
    return b"".join(map(bytes, encode_request_frame(sasl_authenticate.API, 2, 2, "x", request)))


LOG_INS = (
    (handshake("PLAIN"), token(b"\0alice\0guess")),
    (handshake("SCRAM-SHA-256"), token(b"n,,n=bob,r=abc"), token(b"c=biws,r=abc,p=AAAA")),
    (handshake("SCRAM-SHA-512"), token(b"n,,n=nobody,r=abc"), token(b"c=biws,r=abcd,p=")),
    (handshake("OAUTHBEARER"), token(b"n,,\x01auth=Bearer e30.e30.\x01\x01")),
    (handshake("GSSAPI"), token(b"\x60\x06")),
    (API_VERSIONS, handshake("PLAIN"), API_VERSIONS),
)


class Mutator:
    """Changes one conversation, at one point or at none."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._left = chance.choice((0, 0, 0, 1, 1, 2, 3, 5, 99))
        """Messages that are sent as they are before one is changed."""

    def sent(self, data: bytes) -> list[bytes]:
        """What is sent in place of `data`, in pieces."""
        self._left -= 1
        if self._left >= 0 or not data:
            return [data]
        if self._chance.random() < 0.2:
            self._left = self._chance.randrange(3)
        return self._chance.choice(_WAYS)(self._chance, data)


def _flipped(chance: random.Random, data: bytes) -> list[bytes]:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return [bytes(changed)]


def _cut(chance: random.Random, data: bytes) -> list[bytes]:
    return [data[: chance.randrange(len(data))]]


def _without_a_part(chance: random.Random, data: bytes) -> list[bytes]:
    begin = chance.randrange(len(data))
    return [data[:begin] + data[begin + chance.choice((1, 2, 5, 50)) :]]


def _with_more(chance: random.Random, data: bytes) -> list[bytes]:
    at = chance.randrange(len(data) + 1)
    return [data[:at] + chance.randbytes(chance.choice((1, 5, 100, 20_000))) + data[at:]]


def _twice(chance: random.Random, data: bytes) -> list[bytes]:
    return [data] * chance.choice((2, 3, 20))


def _of_other_records(chance: random.Random, data: bytes) -> list[bytes]:
    """Records in another order, left out or repeated."""
    records = list(_records(data))
    return [b"".join(chance.choices(records, k=chance.randint(1, len(records) + 2)))]


def _of_another_head(chance: random.Random, data: bytes) -> list[bytes]:
    """The first record is of another type, version or length."""
    if len(data) < RECORD_HEAD:
        return [data]
    kind = chance.choice((20, 21, 22, 23, 24, 0, 255, data[0]))
    version = chance.choice((0x0300, 0x0301, 0x0303, 0x0304, 0x0200, 0xFFFF))
    size = chance.choice((*_LENGTHS, len(data) - RECORD_HEAD))
    return [struct.pack(">BHH", kind, version, size) + data[RECORD_HEAD:]]


def _of_another_length(chance: random.Random, data: bytes) -> list[bytes]:
    """Some length inside is another, and the bytes behind it stay."""
    at = chance.randrange(len(data))
    number = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
    return [data[:at] + bytes([number] * chance.choice((1, 2, 3, 4))) + data[at + 1 :]]


def _in_small_records(chance: random.Random, data: bytes) -> list[bytes]:
    """One message in many records, as is allowed; some are empty, which is not."""
    pieces = []
    for record in _records(data):
        head, rest = record[:3], record[RECORD_HEAD:]
        size = chance.choice((1, 2, 7, 100))
        pieces += [head + struct.pack(">H", len(part)) + part for part in _parts(rest, size)]
        if chance.random() < 0.3:
            pieces.append(head + b"\0\0")
    return pieces


def _in_pieces(chance: random.Random, data: bytes) -> list[bytes]:
    return list(_parts(data, chance.choice((1, 3, 50))))[:200]


def _garbage(chance: random.Random, _data: bytes) -> list[bytes]:
    return [chance.randbytes(chance.choice((1, 5, 6, 100, 70_000)))]


def _alerts(chance: random.Random, data: bytes) -> list[bytes]:
    """Warnings and errors, as many as somebody likes to send."""
    alert = struct.pack(">BHHBB", 21, 0x0303, 2, chance.choice((1, 2)), chance.choice((0, 10, 100)))
    return [alert * chance.choice((1, 6, 1000)), data]


_WAYS = (
    _flipped,
    _flipped,
    _flipped,
    _cut,
    _without_a_part,
    _with_more,
    _twice,
    _of_other_records,
    _of_another_head,
    _of_another_length,
    _of_another_length,
    _in_small_records,
    _in_pieces,
    _garbage,
    _alerts,
)


def _records(data: bytes) -> Iterator[bytes]:
    while data:
        size = RECORD_HEAD + int.from_bytes(data[3:RECORD_HEAD])
        yield data[:size]
        data = data[size:]


def _parts(data: bytes, size: int) -> Iterator[bytes]:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A listener that is fuzzed."""

    port: int
    has_tls: bool
    certificate: str | None = None
    """What some clients show."""


class HandshakeFuzzer:
    """One after the other, from one seed."""

    def __init__(self, places: Iterable[Place], seed: int) -> None:
        self._chance = random.Random(seed)
        self._places = tuple(places)
        self.talked = 0
        """Conversations."""
        self.shaken = 0
        """Of these, those whose handshake has ended well."""

    def talk(self) -> None:
        """One conversation; whatever the server does to it is no error here."""
        place = self._chance.choice(self._places)
        self.talked += 1
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", place.port), timeout=5) as connection,
        ):
            connection.settimeout(WAIT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if place.has_tls:
                self._talk_tls(connection, place)
            else:
                self._talk_sasl(connection)

    def _talk_sasl(self, connection: socket.socket) -> None:
        mutator = Mutator(self._chance)
        for message in self._chance.choice(LOG_INS):
            for piece in mutator.sent(message):
                connection.sendall(piece)
            if not connection.recv(1 << 16):
                return

    def _talk_tls(self, connection: socket.socket, place: Place) -> None:
        mutator = Mutator(self._chance)
        heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self._context(place).wrap_bio(heard, said, server_hostname="127.0.0.1")
        messages = itertools.chain(self._chance.choice(LOG_INS), [b""])
        is_shaken = False
        for _ in range(TURNS):
            with contextlib.suppress(ssl.SSLError):
                if not is_shaken:
                    client.do_handshake()
                    is_shaken = True
                    self.shaken += 1
                if self._chance.random() < 0.8:
                    client.write(b"".join(Mutator(self._chance).sent(next(messages, b"x"))))
                client.read(1 << 16)
            for piece in mutator.sent(said.read()):
                connection.sendall(piece)
            got = connection.recv(1 << 16)
            if not got:
                return
            heard.write(got)

    def _context(self, place: Place) -> ssl.SSLContext:
        chance = self._chance
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if chance.random() < 0.4:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        if chance.random() < 0.3:
            context.set_ecdh_curve(chance.choice(_CURVES))
        if place.certificate is not None and chance.random() < 0.7:
            context.load_cert_chain(place.certificate)
        return context
