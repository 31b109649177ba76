"""The reach of the operating system's errors: whoever reads it blames a disk only for a disk."""

import errno

import pytest

from storage_engine.core.system_errors import (
    OF_FILES,
    OF_SOCKETS,
    Reach,
    passes_by_itself,
    reach_of_file_error,
    reach_of_socket_error,
)


@pytest.mark.parametrize(
    ("number", "of_file", "of_socket"),
    [
        (errno.EMFILE, Reach.SHORTAGE, Reach.SHORTAGE),
        (errno.ENOMEM, Reach.SHORTAGE, Reach.SHORTAGE),
        (errno.ENOSPC, Reach.ROOM, Reach.CONNECTION),
        (errno.EIO, Reach.LOG_DIR, Reach.CONNECTION),
        (errno.ETIMEDOUT, Reach.LOG_DIR, Reach.CONNECTION),
        (errno.EACCES, Reach.FILE, Reach.PROCESS),
        (errno.EFAULT, Reach.PROCESS, Reach.CONNECTION),
        (errno.EBADF, Reach.PROCESS, Reach.PROCESS),
        (errno.EBADMSG, Reach.FILE, Reach.CONNECTION),
        (None, Reach.FILE, Reach.CONNECTION),
    ],
)
def test_one_number_reaches_as_far_as_what_it_befell(number, of_file, of_socket):
    error = OSError(number, "it failed") if number else OSError("without a number")
    assert reach_of_file_error(error) is of_file
    assert reach_of_socket_error(error) is of_socket
    assert passes_by_itself(error) is (of_file in (Reach.ROOM, Reach.SHORTAGE))


def test_no_file_ends_a_connection_and_no_socket_a_log_dir():
    assert Reach.CONNECTION not in OF_FILES.values()
    assert {Reach.ROOM, Reach.LOG_DIR, Reach.FILE}.isdisjoint(OF_SOCKETS.values())
