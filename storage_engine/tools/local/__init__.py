"""A cluster in a folder of this machine: ZooKeeper and brokers as child processes."""
