"""A server that answers each request at once with the same answer: the limit of the wire with
nothing behind it.

Where there is a C compiler it is the program below, compiled into a temporary folder; else one in
Python that knows the size of the requests, so that it needs no loop over them.
"""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.support.wire_frames import CORRELATION_ID_AT, ProduceFrames
from benchmarks.support.wire_load import RECEIVE_BYTES, SILENCE_TIMEOUT_S, Worker
from storage_engine.tools.errors import CommandError

_C_SOURCE = r"""
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18, CONNECTIONS = 1024 };
struct connection { size_t filled; char received[BUFFER_BYTES]; };
static struct connection *connections[CONNECTIONS];
static char answers[1 << 20];
static char answer[256];
static size_t answer_bytes;

static int serve(int descriptor) {
    struct connection *c = connections[descriptor];
    ssize_t count = read(descriptor, c->received + c->filled, BUFFER_BYTES - c->filled);
    if (count <= 0) return 0;
    c->filled += count;
    size_t at = 0, out = 0;
    while (c->filled - at >= 12) {
        uint32_t size;
        memcpy(&size, c->received + at, 4);
        size = ntohl(size);
        if (c->filled - at < size + 4ul || out + answer_bytes > sizeof answers) break;
        memcpy(answers + out, answer, answer_bytes);
        memcpy(answers + out + 4, c->received + at + 8, 4);
        out += answer_bytes;
        at += size + 4;
    }
    memmove(c->received, c->received + at, c->filled - at);
    c->filled -= at;
    for (size_t done = 0; done < out;) {
        count = write(descriptor, answers + done, out - done);
        if (count < 0) return 0;
        done += count;
    }
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    answer_bytes = strlen(argv[1]) / 2;
    if (answer_bytes > sizeof answer) return 2;
    for (size_t i = 0; i < answer_bytes; i++) {
        unsigned byte;
        sscanf(argv[1] + 2 * i, "%2x", &byte);
        answer[i] = byte;
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0), poller = epoll_create1(0), on = 1;
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof where;
    if (bind(listener, (struct sockaddr *)&where, size) || listen(listener, 16)) return 1;
    getsockname(listener, (struct sockaddr *)&where, &size);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[64];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = 0; /* the end of standard input is the end of us */
    epoll_ctl(poller, EPOLL_CTL_ADD, 0, &event);
    printf("%d\n", ntohs(where.sin_port));
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(poller, events, 64, -1);
        for (int i = 0; i < count; i++) {
            int descriptor = events[i].data.fd;
            if (descriptor == 0) return 0;
            if (descriptor == listener) {
                int accepted = accept(listener, 0, 0);
                if (accepted < 0 || accepted >= CONNECTIONS) return 1;
                setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                connections[accepted] = calloc(1, sizeof(struct connection));
                event.data.fd = accepted;
                epoll_ctl(poller, EPOLL_CTL_ADD, accepted, &event);
            } else if (!serve(descriptor)) {
                free(connections[descriptor]);
                close(descriptor);
            }
        }
    }
}
"""


class Echo(NamedTuple):
    """A running echo server."""

    port: int
    pid: int


@contextlib.contextmanager
def compiled_echo(folder: Path, answer: bytes) -> Iterator[Echo | None]:
    """Run the C program within the block; yield None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        yield None
        return
    source, program = folder / "echo.c", folder / "echo"
    source.write_text(_C_SOURCE)
    built = subprocess.run(
        [compiler, "-O2", "-o", str(program), str(source)], capture_output=True, check=False
    )
    if built.returncode:
        # A compiler without headers or linker: as good as none.
        yield None
        return
    with subprocess.Popen(
        [str(program), answer.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise CommandError("the echo server in C did not start")
        try:
            yield Echo(int(line), process.pid)
        finally:
            process.stdin.close()


def answer_all(listener: socket.socket, frames: ProduceFrames) -> None:
    """Serve one connection until it ends: the echo in Python."""
    import numpy as np

    size, answer_bytes = frames.frame_bytes, len(frames.answer)
    view = memoryview(bytearray(RECEIVE_BYTES // size * size))
    received = np.frombuffer(view, np.uint8)
    answers = np.tile(np.frombuffer(frames.answer, np.uint8), (len(received) // size, 1))
    request_id_at = CORRELATION_ID_AT + 4
    ids = received.reshape(-1, size)[:, request_id_at : request_id_at + 4]
    answer_ids = answers[:, CORRELATION_ID_AT : CORRELATION_ID_AT + 4]
    to_send = answers.reshape(-1).data
    sock, _ = listener.accept()
    with sock:
        sock.settimeout(SILENCE_TIMEOUT_S)
        filled = 0
        while count := sock.recv_into(view[filled:]):
            filled += count
            whole = filled // size
            answer_ids[:whole] = ids[:whole]
            sock.sendall(to_send[: whole * answer_bytes])
            rest = filled - whole * size
            view[:rest] = view[whole * size : filled]
            filled = rest


@contextlib.contextmanager
def python_echo(worker: Worker, frames: ProduceFrames) -> Iterator[Echo]:
    """Run `answer_all` in the worker within the block, for one connection."""
    worker.begin(answer_all, frames)
    yield Echo(worker.port, worker.pid)
    worker.result()
