"""A cluster in a directory of this machine: ZooKeeper and brokers as child processes."""
