"""A TLS server of a few lines that speaks frames: OpenSSL's own side of a connection."""

import contextlib
import datetime
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

import trustme

Talk = Callable[[ssl.SSLSocket], None]


class Authority:
    """A certificate authority, with what a server and its clients need of it in a folder."""

    def __init__(self, folder):
        self.ca = trustme.CA()
        self.folder = folder
        self.ca_file = str(folder / "ca.pem")
        self.ca.cert_pem.write_to_path(self.ca_file)

    def issued(self, *names: str, name: str = "server", expired: bool = False) -> str:
        """The path of a PEM file with a key and its certificate."""
        until = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        certificate = self.ca.issue_cert(*names, not_after=until if expired else None)
        path = self.folder / f"{name}.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)

    def server_context(self, path: str, *, asks: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.ca_file)
        return context

    def client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.ca_file)
        return context


@contextlib.contextmanager
def tls_serving(context: ssl.SSLContext, talk: Talk) -> Iterator[int]:
    """The port of a server that has one conversation with each client, in a thread of its own."""
    listening = socket.create_server(("127.0.0.1", 0))
    threads = []

    def serve_one(sock: socket.socket) -> None:
        # What a client of a test breaks is the test's affair.
        with (
            contextlib.suppress(OSError, EOFError),
            sock,
            context.wrap_socket(sock, server_side=True) as tls,
        ):
            talk(tls)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listening.accept()
                sock.settimeout(60)
                threads.append(threading.Thread(target=serve_one, args=(sock,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join(60)


def exactly(tls: ssl.SSLSocket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = tls.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def frame(tls: ssl.SSLSocket) -> bytes:
    return exactly(tls, struct.unpack(">I", exactly(tls, 4))[0])


def echo_frames(tls: ssl.SSLSocket) -> None:
    while True:
        payload = frame(tls)
        tls.sendall(struct.pack(">I", len(payload)) + payload)
