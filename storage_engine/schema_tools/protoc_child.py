"""Runs protoc within limits; a program of its own, which imports nothing of ours.

Called with the seconds of processor time, the bytes of memory and those of a file that it may use,
and then protoc's arguments. Needs the extra `registry`.
"""

import resource
import sys
from pathlib import Path


def main() -> int:
    seconds, memory, file_bytes = (int(each) for each in sys.argv[1:4])
    import grpc_tools
    from grpc_tools import protoc

    limits = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_CORE: 0,
    }
    for which, limit in limits.items():
        most = resource.getrlimit(which)[1]
        bound = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(which, (bound, bound))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    found: int = protoc.main(["protoc", f"-I{well_known}", *sys.argv[4:]])
    return found


if __name__ == "__main__":
    sys.exit(main())
