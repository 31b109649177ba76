"""The process beside a broker that closes the broker's session with ZooKeeper when it has died."""

NO_SESSION = b"{}"
"""The line by which a broker tells that it has closed its session."""
