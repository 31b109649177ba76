"""The length in front of every frame, for both kinds of connection. It has a module of its own,
because the client must not import asyncio."""

import struct

LENGTH = struct.Struct(">I")
"""Read unsigned: a negative length is then just one that is too large."""

LENGTH_BYTES = 4
