"""The meaning of the operating system's error numbers. A disk is blamed only for failures of a
disk.

Every number that calls on the files of a log and the sockets of a broker can return is in one of
the tables below. The reach of an error decides how it is handled:

    reach       what it means                         what is done
    ROOM        a file system is full now             this action is refused, retriably
    SHORTAGE    there are no descriptors or memory    this action is refused, retriably, and made
                                                      good later where it was cut short
    LOG_DIR     the disk under a log dir has failed   the log dir is offline until a restart
    FILE        this file or name is not as it was    the partition is taken offline
    PROCESS     our own mistake, or a limit of ours   this action ends, with the reason in the log
    CONNECTION  the other end, or the way to it       this connection ends

A failed fsync always has the reach LOG_DIR, whatever its number: the kernel may count the pages as
clean. A number in no table counts as FILE for a file, and as CONNECTION for a socket. Source:
KIP-112.
"""

import enum
import errno
from types import MappingProxyType


class Reach(enum.Enum):
    """The reach of an error: what it makes unusable."""

    ROOM = "room"
    SHORTAGE = "shortage"
    LOG_DIR = "log dir"
    FILE = "file"
    PROCESS = "process"
    CONNECTION = "connection"


OF_FILES = MappingProxyType(
    {
        # There may be room again later.
        errno.ENOSPC: Reach.ROOM,
        errno.EDQUOT: Reach.ROOM,
        errno.EFBIG: Reach.ROOM,
        # The process (EMFILE) or the machine (ENFILE) has as many files open as it may.
        errno.EMFILE: Reach.SHORTAGE,
        errno.ENFILE: Reach.SHORTAGE,
        # The kernel has no memory, or the process as many mappings as it may (vm.max_map_count).
        errno.ENOMEM: Reach.SHORTAGE,
        # A signal interrupted the call, or the call would block; Python itself repeats after a
        # signal.
        errno.EINTR: Reach.SHORTAGE,
        errno.EAGAIN: Reach.SHORTAGE,
        errno.EBUSY: Reach.SHORTAGE,
        # No locks are left (ENOLCK), or the kernel is out of watches and the like (ENOBUFS).
        errno.ENOLCK: Reach.SHORTAGE,
        errno.ENOBUFS: Reach.SHORTAGE,
        # The device, its controller, its network, or the file system itself.
        errno.EIO: Reach.LOG_DIR,
        errno.EROFS: Reach.LOG_DIR,
        errno.ENODEV: Reach.LOG_DIR,
        errno.ENXIO: Reach.LOG_DIR,
        errno.ENOMEDIUM: Reach.LOG_DIR,
        errno.EREMOTEIO: Reach.LOG_DIR,
        errno.ESTALE: Reach.LOG_DIR,
        errno.ETIMEDOUT: Reach.LOG_DIR,
        errno.EUCLEAN: Reach.LOG_DIR,
        # Another process removed, replaced or locked our file.
        errno.ENOENT: Reach.FILE,
        errno.EEXIST: Reach.FILE,
        errno.EACCES: Reach.FILE,
        errno.EPERM: Reach.FILE,
        errno.EISDIR: Reach.FILE,
        errno.ENOTDIR: Reach.FILE,
        errno.ENOTEMPTY: Reach.FILE,
        errno.ELOOP: Reach.FILE,
        errno.ENAMETOOLONG: Reach.FILE,
        errno.EXDEV: Reach.FILE,
        errno.EMLINK: Reach.FILE,
        errno.ETXTBSY: Reach.FILE,
        errno.EOVERFLOW: Reach.FILE,
        # Our code passed a wrong descriptor, position or address.
        errno.EBADF: Reach.PROCESS,
        errno.EINVAL: Reach.PROCESS,
        errno.ESPIPE: Reach.PROCESS,
        errno.EFAULT: Reach.PROCESS,
        # This kernel or file system does not support the call; the caller has an alternative.
        errno.EOPNOTSUPP: Reach.PROCESS,
        errno.ENOSYS: Reach.PROCESS,
    }
)

OF_SOCKETS = MappingProxyType(
    {
        errno.EMFILE: Reach.SHORTAGE,
        errno.ENFILE: Reach.SHORTAGE,
        errno.ENOMEM: Reach.SHORTAGE,
        errno.ENOBUFS: Reach.SHORTAGE,
        errno.EINTR: Reach.SHORTAGE,
        errno.EAGAIN: Reach.SHORTAGE,
        errno.EADDRNOTAVAIL: Reach.SHORTAGE,
        errno.ECONNRESET: Reach.CONNECTION,
        errno.ECONNABORTED: Reach.CONNECTION,
        errno.ECONNREFUSED: Reach.CONNECTION,
        errno.EPIPE: Reach.CONNECTION,
        errno.ENOTCONN: Reach.CONNECTION,
        errno.ESHUTDOWN: Reach.CONNECTION,
        errno.ETIMEDOUT: Reach.CONNECTION,
        errno.EHOSTUNREACH: Reach.CONNECTION,
        errno.EHOSTDOWN: Reach.CONNECTION,
        errno.ENETUNREACH: Reach.CONNECTION,
        errno.ENETDOWN: Reach.CONNECTION,
        errno.ENETRESET: Reach.CONNECTION,
        errno.EPROTO: Reach.CONNECTION,
        # The bytes to be sent lie in a mapped file and the disk can't deliver them. The connection
        # ends, and the next read of them, on a thread, gets the error of the disk.
        errno.EFAULT: Reach.CONNECTION,
        errno.EADDRINUSE: Reach.PROCESS,
        errno.EACCES: Reach.PROCESS,
        errno.EPERM: Reach.PROCESS,
        errno.EAFNOSUPPORT: Reach.PROCESS,
        errno.EINVAL: Reach.PROCESS,
        errno.EBADF: Reach.PROCESS,
        errno.ENOTSOCK: Reach.PROCESS,
    }
)


def reach_of_file_error(error: OSError) -> Reach:
    """Return the reach of an error of a call on a file or directory, other than fsync."""
    return OF_FILES.get(error.errno or 0, Reach.FILE)


def reach_of_socket_error(error: OSError) -> Reach:
    return OF_SOCKETS.get(error.errno or 0, Reach.CONNECTION)


def passes_by_itself(error: OSError) -> bool:
    """Return True when the same call on a file may succeed later without a repair."""
    return reach_of_file_error(error) in (Reach.ROOM, Reach.SHORTAGE)
