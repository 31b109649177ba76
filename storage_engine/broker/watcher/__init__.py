"""The process beside a broker that closes the broker's session with ZooKeeper when it has died."""
