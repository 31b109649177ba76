"""The world of simulated brokers: time, network, disks and ZooKeeper; and the cluster itself."""
