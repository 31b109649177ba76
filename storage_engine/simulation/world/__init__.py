"""What simulated brokers live in: time, network, disks and ZooKeeper; and the cluster itself."""
